// Affine matvec with quantised activations: y[r, o] = sum over groups g of
//   (w_scale[o, g] * x_scale[r, g]) * sum(code * q)  +  w_bias[o, g] * x_sum[r, g]
//
// The codes are read where the file has them. Unit: 128 values as two vectors of bytes, lane i of both from values
// [32 i, 32 i + 32), so that a group of 32 is a lane, one of 64 two:
//   4 bits  64 bytes; first the even values (low nibbles), second the odd ones
//   6 bits  96 bytes; first the first 16 values of each 32, second the others
//   8 bits  128 bytes; as 6 bits
// vpdpbusd per int8 part; hi * 128 + lo, |sum of a lane| < 8 * 255 * 16256 < 2^31, exact. Floats are fma'd per lane
// in ascending order of units, so a row's result does not depend on its neighbours.
//
// Ownership: one thread has outputs [begin, end).
//
// Zen 4, 4 bits, group 64, int15, weights in huge pages: 28 GB/s from the second cache; a token of the Qwen3-0.6B shape
// at 0.9 of the memory's rate on one thread (64 tok/s; 41 with every line prefetched into the first cache).

#include <algorithm>

#include "cpu/avx512/linear_avx512.h"
#include "cpu/avx512/linear_simd.h"

namespace saragossa::cpu::avx512 {
namespace {

constexpr int64_t kBlockOuts = 16;    // outputs whose scales are converted together
constexpr int64_t kChunkGroups = 64;  // and of each so many groups, whole units whatever the group
// Bytes ahead, into the second cache: the first one has too few outstanding misses to keep the memory busy.
constexpr int64_t kPrefetch = 16384;
constexpr int64_t kPrefetchScales = 2048;

struct Codes {
  __m512i first;
  __m512i second;
};

/// Codes of a unit of which n bytes exist; the others count as 0.
template <int bits>
inline Codes unpack(const uint8_t* p, int64_t n = kUnit * bits / 8) {
  const __m512i a = load_bytes(p, n);
  if constexpr (bits == 4) {
    const __m512i nibble = _mm512_set1_epi8(15);
    return {_mm512_and_si512(a, nibble), _mm512_and_si512(_mm512_srli_epi16(a, 4), nibble)};
  } else if constexpr (bits == 6) {
    // 12 bytes of each 24 to a lane: words 6 i and on, words 6 i + 3 and on; b begins at word 8.
    const __m512i b = load_bytes(p + 32, n - 32);
    const __m512i even = _mm512_setr_epi32(0, 1, 2, 0, 6, 7, 8, 0, 12, 13, 14, 0, 26, 27, 28, 0);
    const __m512i odd = _mm512_setr_epi32(3, 4, 5, 0, 9, 10, 11, 0, 15, 24, 25, 0, 29, 30, 31, 0);
    return {spread6(_mm512_permutex2var_epi32(a, even, b)), spread6(_mm512_permutex2var_epi32(a, odd, b))};
  } else {
    const __m512i b = load_bytes(p + 64, n - 64);
    return {_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd)};
  }
}

/// Sums of code * q of a unit in 16 lanes, four for each 32 values.
template <bool two_parts>
inline __m512i dot_unit(const Codes& c, const uint8_t* x) {
  __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), c.first, load_i(x));
  sum = _mm512_dpbusd_epi32(sum, c.second, load_i(x + 64));
  if constexpr (!two_parts) return sum;
  sum = _mm512_dpbusd_epi32(_mm512_slli_epi32(sum, 7), c.first, load_i(x + 128));
  return _mm512_dpbusd_epi32(sum, c.second, load_i(x + 192));
}

/// The first 64 values of a unit in 4 bits, as dot_unit gives them: a row of 576 values ends with half a unit.
template <bool two_parts>
inline __m512 half_unit4(const uint8_t* p, const uint8_t* x) {
  const auto load = [](const uint8_t* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); };
  const __m256i nibble = _mm256_set1_epi8(15);
  const __m256i codes = load(p);
  const __m256i first = _mm256_and_si256(codes, nibble);
  const __m256i second = _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble);
  __m256i sum = _mm256_dpbusd_epi32(_mm256_setzero_si256(), first, load(x));
  sum = _mm256_dpbusd_epi32(sum, second, load(x + 64));
  if constexpr (two_parts) {
    sum = _mm256_dpbusd_epi32(_mm256_slli_epi32(sum, 7), first, load(x + 128));
    sum = _mm256_dpbusd_epi32(sum, second, load(x + 192));
  }
  return _mm512_cvtepi32_ps(_mm512_zextsi256_si512(sum));
}

/// What a block of outputs has besides its codes.
template <int rows>
struct Block {
  alignas(64) float factor[kBlockOuts][rows][kChunkGroups];  // w_scale * x_scale, 0 behind the last group
  __m512 bias_sum[kBlockOuts][rows];                         // sums of w_bias * x_sum
  __m512 sum[kBlockOuts][rows];                              // sums of factor * dot
};

/// Groups of a row, and the part of them that is converted at once.
struct Chunk {
  int64_t groups;  // of the row
  int64_t begin, n;
  bool first() const { return begin == 0; }
};

template <int rows, DType dtype>
void convert_scales(const Matrix& w, const MatvecRow* x, int64_t o, int64_t outs, const Chunk& c, Block<rows>& block) {
  const int64_t row_bytes = c.groups * size_of(dtype);
  const uint8_t* scales = w.scales + o * row_bytes;
  const uint8_t* biases = w.biases + o * row_bytes;
  const __mmask16 narrow = lanes(c.groups);
  for (int64_t i = 0; i < outs; ++i, scales += row_bytes, biases += row_bytes) {
    _mm_prefetch(reinterpret_cast<const char*>(scales) + kPrefetchScales, _MM_HINT_T1);
    _mm_prefetch(reinterpret_cast<const char*>(biases) + kPrefetchScales, _MM_HINT_T1);
    if (c.groups <= 16) {  // the usual case of narrow rows
      const __m512 s = load_floats<dtype>(scales, 0, narrow);
      const __m512 b = load_floats<dtype>(biases, 0, narrow);
      for (int r = 0; r < rows; ++r) {
        _mm512_store_ps(block.factor[i][r], _mm512_mul_ps(s, _mm512_loadu_ps(x[r].scale)));
        block.bias_sum[i][r] = _mm512_mul_ps(b, _mm512_loadu_ps(x[r].sum));
      }
      continue;
    }
    __m512 bias_sum[rows];
    for (int r = 0; r < rows; ++r) bias_sum[r] = c.first() ? _mm512_setzero_ps() : block.bias_sum[i][r];
    for (int64_t g = 0; g < c.n; g += 16) {
      const __mmask16 mask = lanes(c.n - g);
      const __m512 s = load_floats<dtype>(scales, c.begin + g, mask);
      const __m512 b = load_floats<dtype>(biases, c.begin + g, mask);
      for (int r = 0; r < rows; ++r) {
        _mm512_store_ps(block.factor[i][r] + g, _mm512_mul_ps(s, _mm512_loadu_ps(x[r].scale + c.begin + g)));
        bias_sum[r] = _mm512_fmadd_ps(b, _mm512_loadu_ps(x[r].sum + c.begin + g), bias_sum[r]);
      }
    }
    for (int r = 0; r < rows; ++r) block.bias_sum[i][r] = bias_sum[r];
  }
}

template <int rows>
void convert_scales(const Matrix& w, const MatvecRow* x, int64_t o, int64_t outs, const Chunk& c, Block<rows>& block) {
  switch (w.dtype) {
    case DType::bf16: return convert_scales<rows, DType::bf16>(w, x, o, outs, c, block);
    case DType::f16: return convert_scales<rows, DType::f16>(w, x, o, outs, c, block);
    default: return convert_scales<rows, DType::f32>(w, x, o, outs, c, block);
  }
}

/// Of 16 factors, those of the first unit, each in its lanes; plus kUnitGroups: of the next unit.
template <int group>
inline __m512i first_factors() {
  if constexpr (group == 128) return _mm512_setzero_si512();
  if constexpr (group == 64) return _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  return _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
}

/// Groups of the chunk, `outs` outputs from o + i0 on.
template <int bits, int group, bool two_parts, int outs, int rows>
inline void dot_outs(const Matrix& w, const MatvecRow* x, int64_t o, int64_t i0, const Chunk& c, Block<rows>& block) {
  constexpr int64_t kUnitCodes = kUnit * bits / 8;
  constexpr int64_t kUnitX = two_parts ? 2 * kUnit : kUnit;
  constexpr int64_t kUnitGroups = kUnit / group;
  const int64_t row_bytes = w.in * bits / 8;
  const int64_t unit0 = c.begin / kUnitGroups;
  const int64_t units = c.n / kUnitGroups;  // whole ones
  const int64_t rest = (c.n * group - units * kUnit) * bits / 8;
  const uint8_t* codes = w.data + (o + i0) * row_bytes + unit0 * kUnitCodes;
  const char* ahead = reinterpret_cast<const char*>(codes) + kPrefetch;
  // Unrolled, so that the sums live in registers: left to itself, GCC fills them with a string store (a tenth of the
  // time).
  __m512 sum[outs][rows];
#pragma GCC unroll 4
  for (int i = 0; i < outs; ++i) {
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) sum[i][r] = _mm512_setzero_ps();
  }
  if (!c.first()) {
#pragma GCC unroll 4
    for (int i = 0; i < outs; ++i) {
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) sum[i][r] = block.sum[i0 + i][r];
    }
  }

  for (int64_t g = 0; g < c.n; g += 16) {
    __m512 factor[outs][rows];
#pragma GCC unroll 4
    for (int i = 0; i < outs; ++i) {
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) factor[i][r] = _mm512_load_ps(block.factor[i0 + i][r] + g);
    }
    __m512i which = first_factors<group>();
    const auto add_unit = [&](const Codes& code, int i, int64_t u) {
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) {
        const __m512 dot = _mm512_cvtepi32_ps(dot_unit<two_parts>(code, x[r].units + (unit0 + u) * kUnitX));
        sum[i][r] = _mm512_fmadd_ps(dot, _mm512_permutexvar_ps(which, factor[i][r]), sum[i][r]);
      }
    };
    const int64_t end = std::min(units, (g + 16) / kUnitGroups);
    for (int64_t u = g / kUnitGroups; u < end; ++u) {
#pragma GCC unroll 4
      for (int i = 0; i < outs; ++i) add_unit(unpack<bits>(codes + i * row_bytes + u * kUnitCodes), i, u);
      for (int64_t line = 0; line < outs * kUnitCodes; line += 64) _mm_prefetch(ahead + line, _MM_HINT_T1);
      ahead += outs * kUnitCodes;
      which = _mm512_add_epi32(which, _mm512_set1_epi32(kUnitGroups));
    }
    if (rest > 0 && g + 16 >= c.n) {
      for (int64_t line = 0; line < outs * rest; line += 64) _mm_prefetch(ahead + line, _MM_HINT_T1);
#pragma GCC unroll 4
      for (int i = 0; i < outs; ++i) {
        const uint8_t* last = codes + i * row_bytes + units * kUnitCodes;
        if constexpr (bits == 4 && group == 64) {
#pragma GCC unroll 4
          for (int r = 0; r < rows; ++r) {
            const __m512 dot = half_unit4<two_parts>(last, x[r].units + (unit0 + units) * kUnitX);
            sum[i][r] = _mm512_fmadd_ps(dot, _mm512_permutexvar_ps(which, factor[i][r]), sum[i][r]);
          }
        } else {
          add_unit(unpack<bits>(last, rest), i, units);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < outs; ++i) {
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) block.sum[i0 + i][r] = sum[i][r];
  }
}

/// Outputs [o, o + n), at most kBlockOuts.
template <int bits, int group, bool two_parts, int rows>
void dot_block(const Matrix& w, const MatvecRow* x, int64_t o, int64_t n, const OutTile& out, int64_t r0) {
  constexpr int outs = rows == 1 ? 4 : 2;  // share the loads of x
  Block<rows> block;
  const int64_t groups = w.in / group;
  for (int64_t g = 0; g < groups; g += kChunkGroups) {
    const Chunk chunk{groups, g, std::min(kChunkGroups, groups - g)};
    convert_scales<rows>(w, x, o, n, chunk, block);
    int64_t i = 0;
    for (; i + outs <= n; i += outs) dot_outs<bits, group, two_parts, outs, rows>(w, x, o, i, chunk, block);
    for (; i < n; ++i) dot_outs<bits, group, two_parts, 1, rows>(w, x, o, i, chunk, block);
  }
  for (int r = 0; r < rows; ++r) {
    float* y = out.y + (r0 + r) * out.stride + o - out.begin;
    const auto total = [&](int64_t i) { return _mm512_add_ps(block.sum[i][r], block.bias_sum[i][r]); };
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) _mm_storeu_ps(y + i, sums_of(total(i), total(i + 1), total(i + 2), total(i + 3)));
    for (; i < n; ++i) y[i] = sum_of(total(i));
  }
}

template <int bits, int group, bool two_parts>
void matvec(const Matrix& w, const PackFormat& f, const uint8_t* packed, int64_t rows, const OutTile& out) {
  MatvecRow x[kMatvecRows];
  for (int64_t r = 0; r < rows; ++r) x[r] = matvec_row(f, packed, r);
  if (!out.follows) {  // nobody has asked for the first bytes yet: all at once
    const int64_t row_bytes = w.in * bits / 8;
    const char* codes = reinterpret_cast<const char*>(w.data + out.begin * row_bytes);
    const int64_t bytes = std::min(kPrefetch, (out.end - out.begin) * row_bytes);
    for (int64_t line = 0; line < bytes; line += 64) _mm_prefetch(codes + line, _MM_HINT_T1);
  }
  // The codes of a block stay in the first cache while all the rows pass, four at a time.
  for (int64_t o = out.begin; o < out.end; o += kBlockOuts) {
    const int64_t n = std::min(kBlockOuts, out.end - o);
    for (int64_t r = 0; r < rows; r += 4) {
      switch (std::min<int64_t>(rows - r, 4)) {
        case 1: dot_block<bits, group, two_parts, 1>(w, x + r, o, n, out, r); break;
        case 2: dot_block<bits, group, two_parts, 2>(w, x + r, o, n, out, r); break;
        case 3: dot_block<bits, group, two_parts, 3>(w, x + r, o, n, out, r); break;
        default: dot_block<bits, group, two_parts, 4>(w, x + r, o, n, out, r); break;
      }
    }
  }
}

template <int bits, bool two_parts>
void matvec_group(const Matrix& w, const PackFormat& f, const uint8_t* packed, int64_t rows, const OutTile& out) {
  switch (w.group) {
    case 32: return matvec<bits, 32, two_parts>(w, f, packed, rows, out);
    case 64: return matvec<bits, 64, two_parts>(w, f, packed, rows, out);
    default: return matvec<bits, 128, two_parts>(w, f, packed, rows, out);
  }
}

template <int bits>
void matvec_bits(const Matrix& w, const PackFormat& f, const uint8_t* packed, int64_t rows, const OutTile& out) {
  if (f.activations == Activations::int15) return matvec_group<bits, true>(w, f, packed, rows, out);
  matvec_group<bits, false>(w, f, packed, rows, out);
}

}  // namespace

void matvec_int(const Matrix& w, const PackFormat& f, const uint8_t* packed, int64_t rows, const OutTile& out) {
  switch (w.bits) {
    case 4: return matvec_bits<4>(w, f, packed, rows, out);
    case 6: return matvec_bits<6>(w, f, packed, rows, out);
    default: return matvec_bits<8>(w, f, packed, rows, out);
  }
}

}  // namespace saragossa::cpu::avx512
