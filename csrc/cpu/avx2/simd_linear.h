#pragma once
// Small AVX2 helpers of the linears.

#include <immintrin.h>

#include <algorithm>
#include <bit>

#include "core/dtype.h"

namespace saragossa::cpu::avx2 {

inline __m256i load_i(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m128i load_half(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline void store_i(void* p, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }

/// Two 16-byte loads as the lanes of one vector.
inline __m256i load_halves(const void* low, const void* high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(load_half(low)), load_half(high), 1);
}

/// Eight consecutive floats of a dense or scale row; u8: E8M0.
template <DType dtype>
inline __m256 load_floats(const uint8_t* row, int64_t i) {
  if constexpr (dtype == DType::f32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(row) + i);
  } else if constexpr (dtype == DType::u8) {
    const __m256i code = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(row + i)));
    const __m256i power = _mm256_max_epu32(_mm256_slli_epi32(code, 23), _mm256_set1_epi32(0x00400000));
    const __m256i nan = _mm256_cmpeq_epi32(code, _mm256_set1_epi32(255));
    return _mm256_castsi256_ps(_mm256_blendv_epi8(power, _mm256_set1_epi32(0x7fc00000), nan));
  } else {
    const __m128i half = load_half(row + 2 * i);
    if constexpr (dtype == DType::f16) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
}

/// One of them.
template <DType dtype>
inline float load_one(const uint8_t* row, int64_t i) {
  if constexpr (dtype != DType::u8) return load_float(row, dtype, i);
  const uint32_t code = row[i];
  const uint32_t power = code == 0 ? 0x00400000u : code << 23;
  return std::bit_cast<float>(code == 255 ? 0x7fc00000u : power);
}

// Scales and biases of the integer form: those that are stored; of mxfp4 multiples of the scale (linear_kernels.h).
template <DType dtype>
inline __m256 load_scales(const uint8_t* row, int64_t i) {
  if constexpr (dtype != DType::u8) return load_floats<dtype>(row, i);
  return _mm256_mul_ps(load_floats<DType::u8>(row, i), _mm256_set1_ps(0.5f));
}
template <DType dtype>
inline __m256 load_biases(const uint8_t* row, int64_t i) {
  if constexpr (dtype != DType::u8) return load_floats<dtype>(row, i);
  return _mm256_mul_ps(load_floats<DType::u8>(row, i), _mm256_set1_ps(-6.0f));
}
template <DType dtype>
inline float scale_one(const uint8_t* row, int64_t i) {
  return dtype == DType::u8 ? 0.5f * load_one<dtype>(row, i) : load_one<dtype>(row, i);
}
template <DType dtype>
inline float bias_one(const uint8_t* row, int64_t i) {
  return dtype == DType::u8 ? -6.0f * load_one<dtype>(row, i) : load_one<dtype>(row, i);
}

/// 16 codes of 2, 3 or 5 bits, from byte `first` of lane 0 and `second` of lane 1 on: for each two of them the two
/// bytes in which they lie, and what moves them to the top of these 16 bits.
template <int bits, int first, int second>
struct Spread {
  alignas(32) int8_t places[32];
  alignas(32) int16_t factors[16];
  consteval Spread() : places{}, factors{} {
    for (int p = 0; p < 16; ++p) {
      const int bit = p % 8 * 2 * bits;
      const int at = (p < 8 ? first : second) + bit / 8;
      places[2 * p] = static_cast<int8_t>(at);
      places[2 * p + 1] = static_cast<int8_t>((at + 1) % 16);  // where there is none, none of its bits is wanted
      factors[p] = static_cast<int16_t>(1 << (16 - 2 * bits - bit % 8));
    }
  }
};

/// These codes, to 16 bytes of a lane.
template <int bits, int first, int second>
inline __m256i spread(__m256i v) {
  static constexpr Spread<bits, first, second> kSpread;
  constexpr int mask = (1 << bits) - 1;
  const __m256i top = _mm256_mullo_epi16(_mm256_shuffle_epi8(v, load_i(kSpread.places)), load_i(kSpread.factors));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi16(top, 8 - bits), _mm256_set1_epi16(mask << 8));
  return _mm256_or_si256(odd, _mm256_and_si256(_mm256_srli_epi16(top, 16 - 2 * bits), _mm256_set1_epi16(mask)));
}

/// E2M1 in bytes from 0 to 15: 2 * value + 12; bytes with the top bit become 0.
inline __m256i e2m1_codes(__m256i v) {
  const __m128i codes = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(codes), v);
}

/// Eight E4M3 codes in the low bytes of i16: their values.
inline __m256 e4m3_floats(__m128i codes) {
  // As half they have the right exponent less 8, subnormal ones too; 0x7f is NaN.
  const __m128i half =
      _mm_and_si128(_mm_srai_epi16(_mm_slli_epi16(codes, 8), 1), _mm_set1_epi16(static_cast<short>(0xbfff)));
  const __m128i nan = _mm_cmpeq_epi16(_mm_and_si128(half, _mm_set1_epi16(0x7fff)), _mm_set1_epi16(0x3f80));
  return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(half, nan)), _mm256_set1_ps(256.0f));
}

/// ((v0 + v1) + (v2 + v3)) + ((v4 + v5) + (v6 + v7)): one order wherever a vector is summed.
inline float sum_of(__m256 v) {
  const __m256 pairs = _mm256_hadd_ps(v, v);
  const __m256 quads = _mm256_hadd_ps(pairs, pairs);
  return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(quads), _mm256_extractf128_ps(quads, 1)));
}

/// sum_of of four vectors, in the same order.
inline __m128 sums_of(__m256 a, __m256 b, __m256 c, __m256 d) {
  const __m256 quads = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  return _mm_add_ps(_mm256_castps256_ps128(quads), _mm256_extractf128_ps(quads, 1));
}

}  // namespace saragossa::cpu::avx2
