// Affine matvec with quantised activations: y[r, o] = sum over groups g of
//   (w_scale[o, g] * x_scale[r, g]) * sum(code * q)  +  w_bias[o, g] * x_sum[r, g]
//
// The codes are read where the file has them. Unit: 64 values, split so that lane 0 of a vector holds values of
// the first 32, lane 1 of the last 32 (a group of 32 is then a lane):
//   4 bits  32 bytes; even values are the low nibbles, odd ones the high
//   6 bits  48 bytes; four loads of 16, spread by a shuffle to 4 codes per 32 bits
//   2, 3, 5 bits  as 6 bits
//   8 bits  64 bytes; even and odd bytes as u16
//   E2M1    as 4 bits; codes become 2 * value + 12
// All but 8 bits: vpmaddubsw per int8 part, |sum of a unit| <= 63 * 127 * 4 = 32004 (no saturation), joined by
// vpmaddwd with 128 and 1. 8 bits: vpmaddwd with q as i16. Integer sums of a unit are exact; floats are fma'd per
// lane in ascending order of units, so a row's result does not depend on its neighbours.
//
// Ownership: one thread has outputs [begin, end).
//
// 4 bits, group 64, int15: 16 GB/s from the second cache of a Zen 3; on a Zen 4 the Qwen3-0.6B shape decodes 49 tok/s
// on one thread, 84 on two (45 and 72 with every line prefetched 4 KB ahead into the first cache).

#include "cpu/avx2/linear_avx2.h"
#include "cpu/avx2/simd_linear.h"

namespace saragossa::cpu::avx2 {
namespace {

#include "cpu/simd/weights_ahead.inl"

constexpr int64_t kBlockOuts = 8;     // outputs whose scales are converted together
constexpr int64_t kChunkGroups = 64;  // and of each so many groups
constexpr int64_t kPrefetch = 16384;  // bytes ahead in the codes
constexpr int64_t kPrefetchScales = 2048;

template <int bits>
struct Codes {
  __m256i v[bits == 8 ? 4 : 2];
};

/// 6-bit codes: 12 bytes at `shift` of each lane to 16 bytes.
inline __m256i spread6(__m256i v, int shift) {
  const __m128i places = _mm_setr_epi8(0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11);
  const __m256i order = _mm256_broadcastsi128_si256(_mm_add_epi8(places, _mm_set1_epi8(static_cast<char>(shift))));
  const __m256i pairs = _mm256_shuffle_epi8(v, order);  // u16: codes 0 and 1 from bit 0; 2 and 3 from bit 4
  const __m256i low = _mm256_blend_epi16(pairs, _mm256_srli_epi16(pairs, 4), 0xaa);
  return _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi16(0x3f)),
                         _mm256_and_si256(_mm256_slli_epi16(low, 2), _mm256_set1_epi16(0x3f00)));
}

template <int bits>
inline Codes<bits> unpack(const uint8_t* p) {
  if constexpr (bits == 4) {
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i v = load_i(p);
    return {{_mm256_and_si256(v, nibble), _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble)}};
  } else if constexpr (bits == kE2M1) {
    const Codes<4> nibbles = unpack<4>(p);
    return {{e2m1_codes(nibbles.v[0]), e2m1_codes(nibbles.v[1])}};
  } else if constexpr (bits == 2) {
    const __m256i v = load_halves(p, p);
    return {{spread<2, 0, 8>(v), spread<2, 4, 12>(v)}};
  } else if constexpr (bits == 3) {
    const __m256i v = load_halves(p, p + 8);
    return {{spread<3, 0, 4>(v), spread<3, 6, 10>(v)}};
  } else if constexpr (bits == 5) {
    return {{spread<5, 0, 0>(load_halves(p, p + 20)), spread<5, 6, 6>(load_halves(p + 4, p + 24))}};
  } else if constexpr (bits == 6) {
    return {{spread6(load_halves(p, p + 24), 0), spread6(load_halves(p + 8, p + 32), 4)}};
  } else {
    const __m256i a = load_halves(p, p + 32);
    const __m256i b = load_halves(p + 16, p + 48);
    const __m256i even = _mm256_set1_epi16(0xff);
    return {{_mm256_and_si256(a, even), _mm256_srli_epi16(a, 8), _mm256_and_si256(b, even), _mm256_srli_epi16(b, 8)}};
  }
}

/// The last 32 values of a row whose groups of 32 are odd in number; what lies behind them counts as 0.
template <int bits>
inline Codes<bits> unpack_half(const uint8_t* p) {
  alignas(32) uint8_t unit[64] = {};
  for (int i = 0; i < 4 * width_of(bits); ++i) unit[i] = p[i];
  return unpack<bits>(unit);
}

/// Sums of code * q of a unit in eight lanes, lanes 0-3 of its first half.
template <int bits, bool two_parts>
inline __m256i dot_unit(const Codes<bits>& c, const uint8_t* x) {
  const auto* q = reinterpret_cast<const __m256i*>(x);
  if constexpr (bits == 8) {
    const __m256i a = _mm256_add_epi32(_mm256_madd_epi16(c.v[0], q[0]), _mm256_madd_epi16(c.v[1], q[1]));
    const __m256i b = _mm256_add_epi32(_mm256_madd_epi16(c.v[2], q[2]), _mm256_madd_epi16(c.v[3], q[3]));
    return _mm256_add_epi32(a, b);
  } else {
    const __m256i hi = _mm256_add_epi16(_mm256_maddubs_epi16(c.v[0], q[0]), _mm256_maddubs_epi16(c.v[1], q[1]));
    if constexpr (!two_parts) return _mm256_madd_epi16(hi, _mm256_set1_epi16(1));
    const __m256i lo = _mm256_add_epi16(_mm256_maddubs_epi16(c.v[0], q[2]), _mm256_maddubs_epi16(c.v[1], q[3]));
    return _mm256_add_epi32(_mm256_madd_epi16(hi, _mm256_set1_epi16(128)), _mm256_madd_epi16(lo, _mm256_set1_epi16(1)));
  }
}

/// What a block of outputs has besides its codes.
template <int rows>
struct Block {
  alignas(32) float factor[kBlockOuts][rows][kChunkGroups];  // w_scale * x_scale
  __m256 bias_sum[kBlockOuts][rows];                         // sums of w_bias * x_sum
  __m256 sum[kBlockOuts][rows];                              // sums of factor * dot
};

/// Groups of a row, and the part of them that is converted at once.
struct Chunk {
  int64_t groups;  // of the row
  int64_t begin, n;
  int64_t full() const { return begin + n / 8 * 8; }
  bool first() const { return begin == 0; }
};

/// The last groups of a row, which fill no vector. The vector reaches back over groups that were done (their sums are
/// 0 in `tail`), or, where the row has less than eight, is filled up with zeros.
template <int rows, DType dtype>
void convert_tail(const uint8_t* scales, const uint8_t* biases, const MatvecRow* x, const Chunk& c,
                  float (*factor)[kChunkGroups], __m256* bias_sum) {
  const int64_t g = std::max<int64_t>(c.groups - 8, 0);
  __m256 s;
  __m256 b;
  if (c.groups >= 8) {
    s = load_scales<dtype>(scales, g);
    b = load_biases<dtype>(biases, g);
  } else {
    float padded[2][8] = {};
    for (int64_t j = 0; j < c.groups; ++j) {
      padded[0][j] = scale_one<dtype>(scales, j);
      padded[1][j] = bias_one<dtype>(biases, j);
    }
    s = _mm256_loadu_ps(padded[0]);
    b = _mm256_loadu_ps(padded[1]);
  }
  for (int r = 0; r < rows; ++r) {
    const __m256 product = _mm256_mul_ps(s, _mm256_loadu_ps(x[r].scale + g));
    if (g >= c.begin) {
      _mm256_storeu_ps(factor[r] + (g - c.begin), product);
    } else {
      float last[8];
      _mm256_storeu_ps(last, product);
      for (int64_t j = c.begin; j < c.groups; ++j) factor[r][j - c.begin] = last[j - g];
    }
    bias_sum[r] = _mm256_fmadd_ps(b, _mm256_loadu_ps(c.groups >= 8 ? x[r].tail : x[r].sum), bias_sum[r]);
  }
}

/// The usual case: a row of 8 to kChunkGroups groups, all at once.
template <int rows, DType dtype>
void convert_row_scales(const Matrix& w, const MatvecRow* x, int64_t o, int64_t outs, int64_t groups,
                        Block<rows>& block) {
  const int64_t full = groups / 8 * 8;
  const int64_t last = groups - 8;
  const uint8_t* scales = w.scales + o * groups * size_of(dtype);
  const uint8_t* biases = w.biases + o * groups * size_of(dtype);
  for (int64_t i = 0; i < outs; ++i) {
    __m256 bias_sum[rows];
    for (int r = 0; r < rows; ++r) bias_sum[r] = _mm256_setzero_ps();
    const auto add = [&](int64_t g, auto&& sums_at) {
      const __m256 s = load_scales<dtype>(scales, g);
      const __m256 b = load_biases<dtype>(biases, g);
      for (int r = 0; r < rows; ++r) {
        _mm256_storeu_ps(block.factor[i][r] + g, _mm256_mul_ps(s, _mm256_loadu_ps(x[r].scale + g)));
        bias_sum[r] = _mm256_fmadd_ps(b, _mm256_loadu_ps(sums_at(r)), bias_sum[r]);
      }
    };
    for (int64_t g = 0; g < full; g += 8) add(g, [&](int r) { return x[r].sum + g; });
    if (full < groups) add(last, [&](int r) { return x[r].tail; });
    for (int r = 0; r < rows; ++r) block.bias_sum[i][r] = bias_sum[r];
    scales += groups * size_of(dtype);
    biases += groups * size_of(dtype);
  }
}

template <int rows, DType dtype>
void convert_scales(const Matrix& w, const MatvecRow* x, int64_t o, int64_t outs, const Chunk& c, Block<rows>& block) {
  if (c.groups >= 8 && c.groups <= kChunkGroups) return convert_row_scales<rows, dtype>(w, x, o, outs, c.groups, block);
  for (int64_t i = 0; i < outs; ++i) {
    const uint8_t* scales = w.scales + (o + i) * c.groups * size_of(dtype);
    const uint8_t* biases = w.biases + (o + i) * c.groups * size_of(dtype);
    __m256 bias_sum[rows];
    for (int r = 0; r < rows; ++r) bias_sum[r] = c.first() ? _mm256_setzero_ps() : block.bias_sum[i][r];
    for (int64_t g = c.begin; g < c.full(); g += 8) {
      const __m256 s = load_scales<dtype>(scales, g);
      const __m256 b = load_biases<dtype>(biases, g);
      for (int r = 0; r < rows; ++r) {
        _mm256_store_ps(block.factor[i][r] + (g - c.begin), _mm256_mul_ps(s, _mm256_loadu_ps(x[r].scale + g)));
        bias_sum[r] = _mm256_fmadd_ps(b, _mm256_loadu_ps(x[r].sum + g), bias_sum[r]);
      }
    }
    if (c.full() < c.begin + c.n) convert_tail<rows, dtype>(scales, biases, x, c, block.factor[i], bias_sum);
    for (int r = 0; r < rows; ++r) block.bias_sum[i][r] = bias_sum[r];
  }
}

template <int rows>
void convert_scales(const Matrix& w, const MatvecRow* x, int64_t o, int64_t outs, const Chunk& c, Block<rows>& block) {
  switch (w.dtype) {
    case DType::bf16: return convert_scales<rows, DType::bf16>(w, x, o, outs, c, block);
    case DType::f16: return convert_scales<rows, DType::f16>(w, x, o, outs, c, block);
    case DType::u8: return convert_scales<rows, DType::u8>(w, x, o, outs, c, block);
    default: return convert_scales<rows, DType::f32>(w, x, o, outs, c, block);
  }
}

/// The factor of a unit: one group, or two of 32 in a lane each.
template <int group>
inline __m256 unit_factor(const float* factor, int64_t unit) {
  if constexpr (group == 32) {
    const __m256 two = _mm256_castpd_ps(_mm256_broadcast_sd(reinterpret_cast<const double*>(factor + 2 * unit)));
    return _mm256_permutevar_ps(two, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
  } else {
    return _mm256_broadcast_ss(factor + unit * kUnit / group);
  }
}

/// Groups [g0, g0 + n) of `outs` outputs from o + i0 on.
template <int bits, int group, bool two_parts, int outs, int rows>
inline void dot_outs(const Matrix& w, const MatvecRow* x, int64_t o, int64_t i0, const Chunk& c, Block<rows>& block,
                     Ahead& ahead) {
  constexpr int64_t kUnitCodes = kUnit * width_of(bits) / 8;
  constexpr int64_t kUnitX = two_parts || bits == 8 ? 2 * kUnit : kUnit;
  constexpr int64_t kUnitsPerGroup = group == 128 ? 2 : 1;
  const int64_t row_bytes = w.in * width_of(bits) / 8;
  const int64_t unit0 = c.begin * group / kUnit;
  const int64_t units = c.n * group / kUnit;  // whole ones
  const uint8_t* codes = w.data + (o + i0) * row_bytes + unit0 * kUnitCodes;
  // Unrolled, so that the sums live in registers: left to itself, GCC fills them with a string store (a tenth of the
  // time).
  __m256 sum[outs][rows];
#pragma GCC unroll 4
  for (int i = 0; i < outs; ++i) {
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) sum[i][r] = _mm256_setzero_ps();
  }
  if (!c.first()) {
#pragma GCC unroll 4
    for (int i = 0; i < outs; ++i) {
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) sum[i][r] = block.sum[i0 + i][r];
    }
  }

  const auto add_unit = [&](const Codes<bits>& code, int i, int64_t u) {
    for (int r = 0; r < rows; ++r) {
      const __m256i dot = dot_unit<bits, two_parts>(code, x[r].units + (unit0 + u) * kUnitX);
      sum[i][r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), unit_factor<group>(block.factor[i0 + i][r], u), sum[i][r]);
    }
  };
  for (int64_t u = 0; u < units; u += kUnitsPerGroup) {
    ahead.fetch(outs * kUnitCodes * kUnitsPerGroup);
#pragma GCC unroll 4
    for (int i = 0; i < outs; ++i) {
      const uint8_t* p = codes + i * row_bytes + u * kUnitCodes;
      if constexpr (kUnitsPerGroup == 1) {
        add_unit(unpack<bits>(p), i, u);
      } else {
        const Codes<bits> first = unpack<bits>(p);
        const Codes<bits> second = unpack<bits>(p + kUnitCodes);
        for (int r = 0; r < rows; ++r) {
          const uint8_t* q = x[r].units + (unit0 + u) * kUnitX;
          const __m256i dot =
              _mm256_add_epi32(dot_unit<bits, two_parts>(first, q), dot_unit<bits, two_parts>(second, q + kUnitX));
          sum[i][r] =
              _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), unit_factor<group>(block.factor[i0 + i][r], u), sum[i][r]);
        }
      }
    }
  }
  if (group == 32 && (c.n & 1)) {
    for (int i = 0; i < outs; ++i) {
      for (int r = 0; r < rows; ++r) block.factor[i0 + i][r][c.n] = 0.0f;
      add_unit(unpack_half<bits>(codes + i * row_bytes + units * kUnitCodes), i, units);
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
void dot_block(const Matrix& w, const MatvecRow* x, int64_t o, int64_t n, const OutTile& out, int64_t r0,
               Ahead& ahead) {
  constexpr int outs = rows == 1 ? 4 : rows == 2 ? 2 : 1;  // share the loads of x
  Block<rows> block;
  const int64_t groups = w.in / group;
  for (int64_t g = 0; g < groups; g += kChunkGroups) {
    const Chunk chunk{groups, g, std::min(kChunkGroups, groups - g)};
    convert_scales<rows>(w, x, o, n, chunk, block);
    int64_t i = 0;
    for (; i + outs <= n; i += outs) dot_outs<bits, group, two_parts, outs, rows>(w, x, o, i, chunk, block, ahead);
    for (; i < n; ++i) dot_outs<bits, group, two_parts, 1, rows>(w, x, o, i, chunk, block, ahead);
  }
  for (int r = 0; r < rows; ++r) {
    float* y = out.y + (r0 + r) * out.stride + o - out.begin;
    const auto total = [&](int64_t i) { return _mm256_add_ps(block.sum[i][r], block.bias_sum[i][r]); };
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) _mm_storeu_ps(y + i, sums_of(total(i), total(i + 1), total(i + 2), total(i + 3)));
    for (; i < n; ++i) y[i] = sum_of(total(i));
  }
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
      switch (std::min<int64_t>(rows - r, 4)) {
        case 1: dot_block<bits, group, two_parts, 1>(w, x + r, o, n, out, r, again); break;
        case 2: dot_block<bits, group, two_parts, 2>(w, x + r, o, n, out, r, again); break;
        case 3: dot_block<bits, group, two_parts, 3>(w, x + r, o, n, out, r, again); break;
        default: dot_block<bits, group, two_parts, 4>(w, x + r, o, n, out, r, again); break;
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
    case 6: return matvec_bits<6>(w, f, packed, rows, out);
    case kE2M1: return matvec_bits<kE2M1>(w, f, packed, rows, out);
    default: return matvec_group<8, true>(w, f, packed, rows, out);
  }
}

}  // namespace saragossa::cpu::avx2
