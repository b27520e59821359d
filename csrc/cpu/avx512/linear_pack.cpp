// Quantises activations per group and packs them in the orders of linear_matvec.cpp and linear_matmul.cpp.
// The numbers are those of linear_kernels.h, bit for bit the scalar reference's.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "cpu/avx512/linear_avx512.h"
#include "cpu/avx512/linear_simd.h"

namespace saragossa::cpu::avx512 {
namespace {

struct GroupScale {
  float scale = 0.0f;
  float sum = 0.0f;
};

inline __m256i low_half(__m512i v) { return _mm512_castsi512_si256(v); }
inline __m256i high_half(__m512i v) { return _mm512_extracti64x4_epi64(v, 1); }

/// One value out of the 16 of a vector by a function of two vectors of eight, of which only some lanes count.
template <class Join>
inline int32_t fold(__m512i v, Join join) {
  __m256i a = join(low_half(v), high_half(v));
  a = join(a, _mm256_permute2x128_si256(a, a, 1));
  a = join(a, _mm256_shuffle_epi32(a, 0x4e));
  a = join(a, _mm256_shuffle_epi32(a, 0xb1));
  return _mm_cvtsi128_si32(_mm256_castsi256_si128(a));
}

/// q[0, n) = rint(x * limit / max |x|), n a multiple of 32.
GroupScale quantise_group(const float* x, int n, float limit, int16_t* q) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i most16 = _mm512_setzero_si512();  // as integers: an infinity or a NaN is above every number
  for (int i = 0; i < n; i += 16) most16 = _mm512_max_epu32(most16, _mm512_and_si512(load_i(x + i), magnitude));
  const auto bits = static_cast<uint32_t>(fold(most16, [](__m256i a, __m256i b) { return _mm256_max_epu32(a, b); }));
  const float most = std::bit_cast<float>(bits);
  const bool finite = bits < 0x7f800000u;
  if (!finite || most < kSmallestMax) {
    std::memset(q, 0, static_cast<size_t>(n) * sizeof(int16_t));
    const float scale = finite ? 0.0f : NAN;
    return {scale, scale};
  }
  const __m512 inverse = _mm512_set1_ps(limit / most);
  __m512i sum16 = _mm512_setzero_si512();
  for (int i = 0; i < n; i += 16) {
    const __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i), inverse));
    sum16 = _mm512_add_epi32(sum16, v);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + i), _mm512_cvtepi32_epi16(v));
  }
  const int32_t sum = fold(sum16, [](__m256i a, __m256i b) { return _mm256_add_epi32(a, b); });
  const float scale = most / limit;
  return {scale, scale * static_cast<float>(sum)};
}

/// 32 values, each in 8 bits, as the halves that go to the first and the second vector of codes.
inline void store_halves(__m512i v, int bits, uint8_t* to) {
  __m128i first;
  __m128i second;
  if (bits == 4) {  // even and odd values
    first = _mm512_cvtepi32_epi8(v);
    second = _mm512_cvtepi32_epi8(_mm512_srli_epi32(v, 16));
  } else {
    const __m256i bytes = _mm512_cvtepi16_epi8(v);
    first = _mm256_castsi256_si128(bytes);
    second = _mm256_extracti128_si256(bytes, 1);
  }
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), first);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 64), second);
}

/// 128 values in the order of linear_matvec.cpp.
void store_unit(const int16_t* q, int bits, bool two_parts, uint8_t* to) {
  for (int i = 0; i < 4; ++i) {
    const __m512i v = load_i(q + 32 * i);
    if (!two_parts) {
      store_halves(v, bits, to + 16 * i);
      continue;
    }
    const __m512i high = _mm512_srai_epi16(_mm512_add_epi16(v, _mm512_set1_epi16(64)), 7);
    store_halves(high, bits, to + 16 * i);
    store_halves(_mm512_sub_epi16(v, _mm512_slli_epi16(high, 7)), bits, to + kUnit + 16 * i);
  }
}

void pack_matvec_row(const PackFormat& f, const float* x, uint8_t* packed_row) {
  const MatvecRow row = matvec_row(f, packed_row, 0);
  auto* scale = const_cast<float*>(row.scale);
  auto* sum = const_cast<float*>(row.sum);
  auto* units = const_cast<uint8_t*>(row.units);
  const float limit = quant_limit(f.activations);
  alignas(64) int16_t q[kUnit];
  for (int64_t k = 0; k < f.in; k += kUnit) {
    const int64_t n = std::min(kUnit, f.in - k);
    if (n < kUnit) std::memset(q, 0, sizeof(q));
    for (int64_t i = 0; i < n; i += f.group) {
      const GroupScale g = quantise_group(x + k + i, f.group, limit, q + i);
      scale[(k + i) / f.group] = g.scale;
      sum[(k + i) / f.group] = g.sum;
    }
    store_unit(q, f.bits, f.activations == Activations::int15, units + k / kUnit * unit_bytes(f));
  }
  for (int64_t g = f.in / f.group; g < groups16(f); ++g) scale[g] = sum[g] = 0.0f;
}

/// Bytes of eight i16 in the order in which their codes lie in words (unpack_panel() of linear_matmul.cpp).
inline __m128i word_order(int bits, bool two_parts) {
  if (bits == 4 && two_parts) return _mm_setr_epi8(0, 1, 8, 9, 4, 5, 12, 13, 2, 3, 10, 11, 6, 7, 14, 15);
  if (bits == 4) return _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
  if (two_parts) return _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
  return _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/// Rows [begin, end) into their tiles; rows of the last tile that do not exist are zeros.
void pack_matmul(const PackFormat& f, const float* x, int64_t rows, int64_t begin, int64_t end, uint8_t* packed) {
  const float limit = quant_limit(f.activations);
  const bool two_parts = f.activations == Activations::int15;
  const __m128i order = word_order(f.bits, two_parts);
  const int64_t groups = f.in / f.group;
  for (int64_t t = begin / kTileRows; t * kTileRows < end; ++t) {
    const MatmulTile tile = matmul_tile(f, packed, t);
    for (int64_t i = 0; i < kTileRows; ++i) {
      const int64_t r = t * kTileRows + i;
      auto* to = const_cast<int32_t*>(tile.words) + i;
      for (int64_t g = 0; g < groups; ++g) {
        alignas(64) int16_t q[kUnit] = {};
        const GroupScale s = r < rows ? quantise_group(x + r * f.in + g * f.group, f.group, limit, q) : GroupScale{};
        const_cast<float*>(tile.scale)[g * kTileRows + i] = s.scale;
        const_cast<float*>(tile.sum)[g * kTileRows + i] = s.sum;
        for (int k = 0; k < f.group; k += 8) {
          __m128i v = _mm_shuffle_epi8(_mm_load_si128(reinterpret_cast<const __m128i*>(q + k)), order);
          if (!two_parts) v = _mm_packs_epi16(v, v);
          int32_t words[4];
          _mm_storeu_si128(reinterpret_cast<__m128i*>(words), v);
          for (int p = 0; p < (two_parts ? 4 : 2); ++p, to += kTileRows) *to = words[p];
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
  if (f.matmul) return pack_matmul(f, x, rows, begin, end, packed);
  for (int64_t r = begin; r < end; ++r) pack_matvec_row(f, x + r * f.in, packed + r * matvec_row_bytes(f));
}

}  // namespace saragossa::cpu::avx512
