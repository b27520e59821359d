// Quantises activations per group and packs them in the orders of linear_matvec.cpp and linear_matmul.cpp.
// The numbers are those of linear_kernels.h, bit for bit the scalar reference's.

#include <cmath>
#include <cstring>

#include "cpu/avx2/linear_avx2.h"
#include "cpu/avx2/simd_linear.h"

namespace saragossa::cpu::avx2 {
namespace {

struct GroupScale {
  float scale;
  float sum;
};

/// q[0, n) = rint(x * limit / max |x|), n a multiple of 32.
GroupScale quantise_group(const float* x, int n, float limit, int16_t* q) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i most8 = _mm256_setzero_si256();  // as integers: an infinity or a NaN is above every number
  for (int i = 0; i < n; i += 8) most8 = _mm256_max_epu32(most8, _mm256_and_si256(load_i(x + i), magnitude));
  __m128i most4 = _mm_max_epu32(_mm256_castsi256_si128(most8), _mm256_extracti128_si256(most8, 1));
  most4 = _mm_max_epu32(most4, _mm_shuffle_epi32(most4, 0x4e));
  most4 = _mm_max_epu32(most4, _mm_shuffle_epi32(most4, 0xb1));
  const uint32_t bits = static_cast<uint32_t>(_mm_cvtsi128_si32(most4));
  const float most = std::bit_cast<float>(bits);
  const bool finite = bits < 0x7f800000u;
  if (!finite || most < kSmallestMax) {
    std::memset(q, 0, static_cast<size_t>(n) * sizeof(int16_t));
    const float scale = finite ? 0.0f : NAN;
    return {scale, scale};
  }
  const __m256 inverse = _mm256_set1_ps(limit / most);
  __m256i sum8 = _mm256_setzero_si256();
  for (int i = 0; i < n; i += 16) {
    const __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), inverse));
    const __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i + 8), inverse));
    sum8 = _mm256_add_epi32(sum8, _mm256_add_epi32(a, b));
    store_i(q + i, _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8));
  }
  __m128i sum4 = _mm_add_epi32(_mm256_castsi256_si128(sum8), _mm256_extracti128_si256(sum8, 1));
  sum4 = _mm_add_epi32(sum4, _mm_shuffle_epi32(sum4, 0x4e));
  sum4 = _mm_add_epi32(sum4, _mm_shuffle_epi32(sum4, 0xb1));
  const float scale = most / limit;
  return {scale, scale * static_cast<float>(_mm_cvtsi128_si32(sum4))};
}

inline __m256i high_part(__m256i q) { return _mm256_srai_epi16(_mm256_add_epi16(q, _mm256_set1_epi16(64)), 7); }
inline __m256i low_part(__m256i q) { return _mm256_sub_epi16(q, _mm256_slli_epi16(high_part(q), 7)); }

/// Even and odd i16 of 32 values as bytes' worth of i16, in order: [0, 2, ..., 30] and [1, 3, ..., 31].
inline __m256i evens(__m256i a, __m256i b) {
  const __m256i packed = _mm256_packs_epi32(_mm256_srai_epi32(_mm256_slli_epi32(a, 16), 16),
                                            _mm256_srai_epi32(_mm256_slli_epi32(b, 16), 16));
  return _mm256_permute4x64_epi64(packed, 0xd8);
}
inline __m256i odds(__m256i a, __m256i b) {
  return _mm256_permute4x64_epi64(_mm256_packs_epi32(_mm256_srai_epi32(a, 16), _mm256_srai_epi32(b, 16)), 0xd8);
}
inline __m256i bytes(__m256i a, __m256i b) {  // i16 to i8, in order
  return _mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0xd8);
}

/// The two vectors v[0], v[1] of i16 pairs as int8 parts: the high ones, then (int15) the low ones.
inline void store_parts(__m256i a0, __m256i b0, __m256i a1, __m256i b1, bool two_parts, uint8_t* to) {
  if (!two_parts) {
    store_i(to, bytes(a0, b0));
    store_i(to + 32, bytes(a1, b1));
    return;
  }
  store_i(to, bytes(high_part(a0), high_part(b0)));
  store_i(to + 32, bytes(high_part(a1), high_part(b1)));
  store_i(to + 64, bytes(low_part(a0), low_part(b0)));
  store_i(to + 96, bytes(low_part(a1), low_part(b1)));
}

/// 64 values in the order of linear_matvec.cpp.
void store_unit(const int16_t* q, int bits, bool two_parts, uint8_t* to) {
  const __m256i a = load_i(q), b = load_i(q + 16), c = load_i(q + 32), d = load_i(q + 48);
  if (bits == 4) {
    store_parts(evens(a, b), evens(c, d), odds(a, b), odds(c, d), two_parts, to);
  } else if (bits != 8) {
    store_parts(a, c, b, d, two_parts, to);
  } else {
    const __m256i ac = _mm256_permute2x128_si256(evens(a, b), evens(c, d), 0x20);
    const __m256i bd = _mm256_permute2x128_si256(evens(a, b), evens(c, d), 0x31);
    store_i(to, ac);
    store_i(to + 32, _mm256_permute2x128_si256(odds(a, b), odds(c, d), 0x20));
    store_i(to + 64, bd);
    store_i(to + 96, _mm256_permute2x128_si256(odds(a, b), odds(c, d), 0x31));
  }
}

void pack_matvec_row(const PackFormat& f, const float* x, uint8_t* packed_row) {
  const MatvecRow row = matvec_row(f, packed_row, 0);
  auto* scale = const_cast<float*>(row.scale);
  auto* sum = const_cast<float*>(row.sum);
  auto* tail = const_cast<float*>(row.tail);
  auto* units = const_cast<uint8_t*>(row.units);
  const float limit = quant_limit(f.activations);
  const bool two_parts = f.activations == Activations::int15;
  const int64_t span = std::max<int64_t>(f.group, kUnit);
  alignas(32) int16_t q[128];
  for (int64_t k = 0; k < f.in; k += span) {
    const int64_t n = std::min(span, f.in - k);
    if (n < span) std::memset(q, 0, sizeof(q));
    for (int64_t i = 0; i < n; i += f.group) {
      const GroupScale g = quantise_group(x + k + i, f.group, limit, q + i);
      scale[(k + i) / f.group] = g.scale;
      sum[(k + i) / f.group] = g.sum;
    }
    for (int64_t i = 0; i < n; i += kUnit)
      store_unit(q + i, f.bits, two_parts, units + (k + i) / kUnit * unit_bytes(f));
  }
  const int64_t groups = f.groups();
  for (int64_t g = groups; g < groups8(f); ++g) scale[g] = sum[g] = 0.0f;
  for (int64_t i = 0; i < 8; ++i) {
    const int64_t g = groups - 8 + i;
    tail[i] = g >= groups / 8 * 8 ? sum[g] : 0.0f;
  }
}

/// Rows [begin, end) into their tiles; rows of the last tile that do not exist are zeros.
void pack_matmul(const PackFormat& f, const float* x, int64_t rows, int64_t begin, int64_t end, uint8_t* packed) {
  const float limit = quant_limit(f.activations);
  // 4-bit codes come out of a 32-bit word as the pairs (0, 4), (1, 5), (2, 6), (3, 7); others in order.
  const __m256i order =
      _mm256_broadcastsi128_si256(f.bits == 4 ? _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15)
                                              : _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  for (int64_t t = begin / kTileRows; t * kTileRows < end; ++t) {
    const MatmulTile tile = matmul_tile(f, packed, t);
    for (int64_t i = 0; i < kTileRows; ++i) {
      const int64_t r = t * kTileRows + i;
      auto* to = const_cast<int16_t*>(tile.q) + 2 * i;
      for (int64_t g = 0; g < f.groups(); ++g) {
        alignas(32) int16_t q[128] = {};
        const GroupScale s = r < rows ? quantise_group(x + r * f.in + g * f.group, f.group, limit, q) : GroupScale{};
        const_cast<float*>(tile.scale)[g * kTileRows + i] = s.scale;
        const_cast<float*>(tile.sum)[g * kTileRows + i] = s.sum;
        for (int k = 0; k < f.group; k += 16) {
          store_i(q + k, _mm256_shuffle_epi8(load_i(q + k), order));
          int16_t* pairs = to + (g * f.group + k) * kTileRows;
          for (int p = 0; p < 8; ++p) std::memcpy(pairs + p * 2 * kTileRows, q + k + 2 * p, 4);
        }
      }
    }
  }
}

}  // namespace

int64_t packed_bytes(const PackFormat& f, int64_t rows) {
  return f.matmul ? (rows + kTileRows - 1) / kTileRows * tile_bytes(f) : rows * matvec_row_bytes(f);
}

void pack(const PackFormat& f, const float* x, int64_t rows, int64_t begin, int64_t end, uint8_t* packed) {
  if (f.matmul) {
    pack_matmul(f, x, rows, begin, end, packed);
    return;
  }
  for (int64_t r = begin; r < end; ++r) pack_matvec_row(f, x + r * f.in, packed + r * matvec_row_bytes(f));
}

}  // namespace saragossa::cpu::avx2
