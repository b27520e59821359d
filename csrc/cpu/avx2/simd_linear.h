#pragma once
// Small AVX2 helpers of the linears.

#include <immintrin.h>

#include "core/dtype.h"

namespace saragossa::cpu::avx2 {

inline __m256i load_i(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m128i load_half(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline void store_i(void* p, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }

/// Two 16-byte loads as the lanes of one vector.
inline __m256i load_halves(const void* low, const void* high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(load_half(low)), load_half(high), 1);
}

/// Eight consecutive floats of a dense or scale row.
template <DType dtype>
inline __m256 load_floats(const uint8_t* row, int64_t i) {
  if constexpr (dtype == DType::f32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(row) + i);
  } else {
    const __m128i half = load_half(row + 2 * i);
    if constexpr (dtype == DType::f16) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
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
