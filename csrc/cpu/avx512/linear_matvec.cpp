// Affine matvec with quantised activations: y[r, o] = sum over groups g of
//   (w_scale[o, g] * x_scale[r, g]) * sum(code * q)  +  w_bias[o, g] * x_sum[r, g]
//
// The codes are read where the file has them. Unit: 128 values as two vectors of bytes, lane i of both from values
// [32 i, 32 i + 32), so that a group of 32 is a lane, one of 64 two:
//   4 bits  64 bytes; first the even values (low nibbles), second the odd ones
//   6 bits  96 bytes; first the first 16 values of each 32, second the others
//   2, 3, 5, 8 bits  as 6 bits
//   E2M1    as 4 bits; codes become 2 * value + 12
// One row of x on a narrow matrix has a form of its own (dot_narrow), with the same operations in the same order.
//
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

#include "cpu/simd/weights_ahead.inl"

constexpr int64_t kBlockOuts = 16;
// Bytes ahead, into the second cache: the first one has too few outstanding misses to keep the memory busy.
constexpr int64_t kPrefetch = 16384;
constexpr int64_t kPrefetchScales = 2048;

struct Codes {
  __m512i first;
  __m512i second;
};

/// The first 64 bytes of a unit of which n exist. Whole units of less are loaded without a mask, which would cost more
/// than all that follows.
template <int bits>
inline __m512i load_first(const uint8_t* p, int64_t n) {
  if constexpr (bits == 2 || bits == 3) {
    if (n == kUnit * bits / 8) {
      const __m512i low = _mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
      if constexpr (bits == 2) return low;
      return _mm512_inserti32x4(low, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 32)), 2);
    }
  }
  return load_bytes(p, n);
}

/// Codes of a unit of which n bytes exist; the others count as 0.
template <int bits>
inline Codes unpack(const uint8_t* p, int64_t n = kUnit * width_of(bits) / 8) {
  const __m512i a = load_first<bits>(p, n);
  if constexpr (bits == 4) {
    const __m512i nibble = _mm512_set1_epi8(15);
    return {_mm512_and_si512(a, nibble), _mm512_and_si512(_mm512_srli_epi16(a, 4), nibble)};
  } else if constexpr (bits == kE2M1) {
    const __m512i nibble = _mm512_set1_epi8(15);
    return {e2m1_codes(_mm512_and_si512(a, nibble)), e2m1_codes(_mm512_and_si512(_mm512_srli_epi16(a, 4), nibble))};
  } else if constexpr (bits == 2) {
    const __m512i lanes =
        _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 1, 0, 0, 2, 3, 0, 0, 4, 5, 0, 0, 6, 7, 0, 0), a);
    return {spread<2, 0, 0>(lanes), spread<2, 4, 4>(lanes)};
  } else if constexpr (bits == 3) {
    const __m512i lanes =
        _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 1, 2, 0, 3, 4, 5, 0, 6, 7, 8, 0, 9, 10, 11, 0), a);
    return {spread<3, 0, 0>(lanes), spread<3, 6, 6>(lanes)};
  } else if constexpr (bits == 5) {
    // 20 bytes to 32 values: the second 16 begin in the middle of a word.
    const __m512i b = n == 80 ? _mm512_zextsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 64)))
                              : load_bytes(p + 64, n - 64);
    const __m512i even = _mm512_setr_epi32(0, 1, 2, 0, 5, 6, 7, 0, 10, 11, 12, 0, 15, 16, 17, 0);
    const __m512i odd = _mm512_setr_epi32(2, 3, 4, 0, 7, 8, 9, 0, 12, 13, 14, 0, 17, 18, 19, 0);
    return {spread<5, 0, 0>(_mm512_permutex2var_epi32(a, even, b)),
            spread<5, 2, 2>(_mm512_permutex2var_epi32(a, odd, b))};
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
inline __m512i half_unit4(const uint8_t* p, const uint8_t* x) {
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
  return _mm512_zextsi256_si512(sum);
}

/// 16 groups of `outs` outputs from g on: scales or biases as floats, 0 behind the last group.
template <DType dtype, int outs>
inline void load_groups(const uint8_t* rows, int64_t groups, int64_t g, __m512 to[outs]) {
  const __mmask16 mask = lanes(groups - g);
#pragma GCC unroll 4
  for (int i = 0; i < outs; ++i) to[i] = load_floats<dtype>(rows, i * groups + g, mask);
}

/// Of E2M1 `unit` times the stored scales; else as stored.
template <int bits, int outs>
inline void load_groups(DType dtype, const uint8_t* rows, int64_t groups, int64_t g, float unit, __m512 to[outs]) {
  if constexpr (bits == kE2M1) {
    load_groups<DType::u8, outs>(rows, groups, g, to);
#pragma GCC unroll 4
    for (int i = 0; i < outs; ++i) to[i] = _mm512_mul_ps(to[i], _mm512_set1_ps(unit));
    return;
  }
  if (dtype == DType::bf16) return load_groups<DType::bf16, outs>(rows, groups, g, to);
  if (dtype == DType::f16) return load_groups<DType::f16, outs>(rows, groups, g, to);
  load_groups<DType::f32, outs>(rows, groups, g, to);
}

/// Of 16 factors, those of the first unit, each in its lanes; plus kUnitGroups: of the next unit.
template <int group>
inline __m512i first_factors() {
  if constexpr (group == 128) return _mm512_setzero_si512();
  if constexpr (group == 64) return _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  return _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
}

/// Outputs [o, o + outs); y[r * stride + i] receives row r, output o + i. Loops over outs and rows are unrolled, so
/// that the sums live in registers: left to itself, GCC fills them with a string store (a tenth of the time).
template <int bits, int group, bool two_parts, int outs, int rows>
inline void dot_outs(const Matrix& w, const MatvecRow* x, int64_t o, float* y, int64_t stride, Ahead& ahead) {
  constexpr int64_t kUnitCodes = kUnit * width_of(bits) / 8;
  constexpr int64_t kUnitX = two_parts ? 2 * kUnit : kUnit;
  constexpr int64_t kUnitGroups = kUnit / group;
  const int64_t groups = w.in / group;
  const int64_t units = groups / kUnitGroups;  // whole ones
  const int64_t row_bytes = w.in * width_of(bits) / 8;
  const int64_t rest = row_bytes - units * kUnitCodes;
  const uint8_t* codes = w.data + o * row_bytes;
  const uint8_t* scales = w.scales + o * groups * size_of(w.dtype);
  const uint8_t* biases = w.biases + o * groups * size_of(w.dtype);

  __m512 sum[outs][rows];
#pragma GCC unroll 4
  for (int i = 0; i < outs; ++i) {
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) sum[i][r] = _mm512_setzero_ps();
  }
  for (int64_t g = 0; g < groups; g += 16) {
    __m512 bias[outs];
    load_groups<bits, outs>(w.dtype, biases, groups, g, -6.0f, bias);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const __m512 x_sum = _mm512_loadu_ps(x[r].sum + g);
#pragma GCC unroll 4
      for (int i = 0; i < outs; ++i) sum[i][r] = _mm512_fmadd_ps(bias[i], x_sum, sum[i][r]);
    }
  }

  for (int64_t g = 0; g < groups; g += 16) {
    __m512 scale[outs];
    load_groups<bits, outs>(w.dtype, scales, groups, g, 0.5f, scale);
    __m512 factor[outs][rows];
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const __m512 x_scale = _mm512_loadu_ps(x[r].scale + g);
#pragma GCC unroll 4
      for (int i = 0; i < outs; ++i) factor[i][r] = _mm512_mul_ps(scale[i], x_scale);
    }
    __m512i which = first_factors<group>();
    const auto add = [&](int i, int r, __m512i dot) {
      const __m512 f = _mm512_permutexvar_ps(which, factor[i][r]);
      sum[i][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), f, sum[i][r]);
    };
    const int64_t end = std::min(units, (g + 16) / kUnitGroups);
    for (int64_t u = g / kUnitGroups; u < end; ++u) {
#pragma GCC unroll 4
      for (int i = 0; i < outs; ++i) {
        const Codes code = unpack<bits>(codes + i * row_bytes + u * kUnitCodes);
#pragma GCC unroll 4
        for (int r = 0; r < rows; ++r) add(i, r, dot_unit<two_parts>(code, x[r].units + u * kUnitX));
      }
      ahead.fetch(outs * kUnitCodes);
      which = _mm512_add_epi32(which, _mm512_set1_epi32(kUnitGroups));
    }
    if (rest > 0 && g + 16 >= groups) {
#pragma GCC unroll 4
      for (int i = 0; i < outs; ++i) {
        const uint8_t* last = codes + i * row_bytes + units * kUnitCodes;
        if constexpr (bits == 4 && group == 64) {
#pragma GCC unroll 4
          for (int r = 0; r < rows; ++r) add(i, r, half_unit4<two_parts>(last, x[r].units + units * kUnitX));
        } else {
          const Codes code = unpack<bits>(last, rest);
#pragma GCC unroll 4
          for (int r = 0; r < rows; ++r) add(i, r, dot_unit<two_parts>(code, x[r].units + units * kUnitX));
        }
      }
      ahead.fetch(outs * rest);
    }
  }

#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
    if constexpr (outs == 4) {
      _mm_storeu_ps(y + r * stride, sums_of(sum[0][r], sum[1][r], sum[2][r], sum[3][r]));
    } else {
#pragma GCC unroll 4
      for (int i = 0; i < outs; ++i) y[r * stride + i] = sum_of(sum[i][r]);
    }
  }
}

/// dot_outs for one row of x, 16 groups at most and bf16 scales, the usual case of narrow matrices: what does not
/// change from output to output stays in registers. n is a multiple of 4. The numbers are those of dot_outs.
template <int bits, int group, bool two_parts>
[[gnu::noinline]] void dot_narrow(const Matrix& w, const MatvecRow& x, int64_t o, int64_t n, float* y, Ahead& to_ask) {
  constexpr int64_t kUnitCodes = kUnit * width_of(bits) / 8;
  constexpr int64_t kUnitX = two_parts ? 2 * kUnit : kUnit;
  constexpr int64_t kUnitGroups = kUnit / group;
  const int64_t groups = w.in / group;
  const int64_t row_bytes = w.in * width_of(bits) / 8;
  const int64_t whole = groups / kUnitGroups * kUnitCodes;
  const uint8_t* codes = w.data + o * row_bytes;
  const uint8_t* scales = w.scales + o * groups * 2;
  const uint8_t* biases = w.biases + o * groups * 2;
  const __mmask16 mask = lanes(groups);
  const __m512 x_scale = _mm512_loadu_ps(x.scale);
  const __m512 x_sum = _mm512_loadu_ps(x.sum);
  const uint8_t* const units = x.units;
  Ahead ahead = to_ask;
  for (int64_t i = 0; i < n; i += 4) {
    __m512 sum[4];
    __m512 factor[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m512 bias = load_floats<DType::bf16>(biases, j * groups, mask);
      sum[j] = _mm512_fmadd_ps(bias, x_sum, _mm512_setzero_ps());
      factor[j] = _mm512_mul_ps(load_floats<DType::bf16>(scales, j * groups, mask), x_scale);
    }
    __m512i which = first_factors<group>();
    const auto add = [&](int j, __m512i dot) {
      sum[j] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_permutexvar_ps(which, factor[j]), sum[j]);
    };
    const uint8_t* q = units;
    for (int64_t at = 0; at < whole; at += kUnitCodes) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) add(j, dot_unit<two_parts>(unpack<bits>(codes + j * row_bytes + at), q));
      ahead.ask(4 * at, 4 * kUnitCodes);
      which = _mm512_add_epi32(which, _mm512_set1_epi32(kUnitGroups));
      q += kUnitX;
    }
    if constexpr (bits == 4 && group == 64) {
      if (whole < row_bytes) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) add(j, half_unit4<two_parts>(codes + j * row_bytes + whole, q));
        ahead.ask(4 * whole, 4 * kUnitCodes / 2);
      }
    }
    ahead.pass(4 * row_bytes);
    _mm_storeu_ps(y + i, sums_of(sum[0], sum[1], sum[2], sum[3]));
    codes += 4 * row_bytes;
    scales += 4 * groups * 2;
    biases += 4 * groups * 2;
  }
  to_ask = ahead;
}

/// Outputs [o, o + n) of `rows` rows; x and y begin at the first of them.
template <int bits, int group, bool two_parts, int rows>
void dot_block(const Matrix& w, const MatvecRow* x, int64_t o, int64_t n, float* y, int64_t stride, Ahead& ahead) {
  constexpr int outs = rows == 1 ? 4 : 2;  // share the loads of x
  int64_t i = 0;
  if constexpr (rows == 1 && bits != kE2M1) {  // its scales are never bf16
    const bool whole = w.in % kUnit == 0 || (bits == 4 && group == 64);
    if (w.dtype == DType::bf16 && w.in <= 16 * group && whole) {
      i = n / 4 * 4;
      dot_narrow<bits, group, two_parts>(w, x[0], o, i, y, ahead);
    }
  }
  for (; i + outs <= n; i += outs) dot_outs<bits, group, two_parts, outs, rows>(w, x, o + i, y + i, stride, ahead);
  for (; i < n; ++i) dot_outs<bits, group, two_parts, 1, rows>(w, x, o + i, y + i, stride, ahead);
}

template <int bits, int group, bool two_parts>
void matvec(const Matrix& w, const PackFormat& f, const uint8_t* packed, int64_t rows, const OutTile& out) {
  MatvecRow x[kMatvecRows];
  for (int64_t r = 0; r < rows; ++r) x[r] = matvec_row(f, packed, r);
  const int64_t scale_bytes = w.in / group * size_of(w.dtype);
  const WeightsAt& after = out.upcoming.after;
  Ahead codes(w.data, w.in * width_of(bits) / 8, out, after.data, kPrefetch);
  Ahead scales(w.scales, scale_bytes, out, after.scales, kPrefetchScales);
  Ahead biases(w.biases, scale_bytes, out, after.biases, kPrefetchScales);
  // The codes of a block stay in the first cache while all the rows pass, four at a time.
  for (int64_t o = out.begin; o < out.end; o += kBlockOuts) {
    const int64_t n = std::min(kBlockOuts, out.end - o);
    scales.fetch(n * scale_bytes);
    biases.fetch(n * scale_bytes);
    for (int64_t r = 0; r < rows; r += 4) {
      Ahead again = codes;  // only the last pass moves on
      float* y = out.y + r * out.stride + o - out.begin;
      switch (std::min<int64_t>(rows - r, 4)) {
        case 1: dot_block<bits, group, two_parts, 1>(w, x + r, o, n, y, out.stride, again); break;
        case 2: dot_block<bits, group, two_parts, 2>(w, x + r, o, n, y, out.stride, again); break;
        case 3: dot_block<bits, group, two_parts, 3>(w, x + r, o, n, y, out.stride, again); break;
        default: dot_block<bits, group, two_parts, 4>(w, x + r, o, n, y, out.stride, again); break;
      }
      if (r + 4 >= rows) codes = again;
    }
  }
}

template <int bits, bool two_parts>
void matvec_group(const Matrix& w, const PackFormat& f, const uint8_t* packed, int64_t rows, const OutTile& out) {
  if constexpr (bits == kE2M1) return matvec<bits, 32, two_parts>(w, f, packed, rows, out);
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
  switch (code_of(w)) {
    case 2: return matvec_bits<2>(w, f, packed, rows, out);
    case 3: return matvec_bits<3>(w, f, packed, rows, out);
    case 4: return matvec_bits<4>(w, f, packed, rows, out);
    case 5: return matvec_bits<5>(w, f, packed, rows, out);
    case kE2M1: return matvec_bits<kE2M1>(w, f, packed, rows, out);
    case 6: return matvec_bits<6>(w, f, packed, rows, out);
    default: return matvec_bits<8>(w, f, packed, rows, out);
  }
}

}  // namespace saragossa::cpu::avx512
