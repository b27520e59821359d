#pragma once
// Small AVX-512 helpers of the linears.

#include <immintrin.h>

#include "core/dtype.h"

namespace saragossa::cpu::avx512 {

inline __m512i load_i(const void* p) { return _mm512_loadu_si512(p); }
inline void store_i(void* p, __m512i v) { _mm512_storeu_si512(p, v); }

/// n bytes from p, zeros behind them; n of 64 or more loads 64, below 1 none.
inline __m512i load_bytes(const uint8_t* p, int64_t n) {
  if (n >= 64) return load_i(p);
  return _mm512_maskz_loadu_epi8(n > 0 ? (uint64_t{1} << n) - 1 : 0, p);
}

/// The first n of 16 lanes, n >= 0.
inline __mmask16 lanes(int64_t n) { return static_cast<__mmask16>(n >= 16 ? 0xffffu : (1u << n) - 1u); }

/// Elements [i, i + 16) of a dense or scale row as floats (u8: powers of two); those that the mask leaves out are 0 and
/// not read.
template <DType dtype>
inline __m512 load_floats(const uint8_t* row, int64_t i, __mmask16 mask = 0xffff) {
  if constexpr (dtype == DType::f32) {
    return _mm512_maskz_loadu_ps(mask, row + 4 * i);
  } else if constexpr (dtype == DType::u8) {  // E8M0
    const __m512i code = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, row + i));
    const __m512i power = _mm512_maskz_max_epu32(mask, _mm512_slli_epi32(code, 23), _mm512_set1_epi32(0x00400000));
    const __mmask16 nan = _mm512_cmpeq_epi32_mask(code, _mm512_set1_epi32(255));
    return _mm512_castsi512_ps(_mm512_mask_blend_epi32(nan, power, _mm512_set1_epi32(0x7fc00000)));
  } else {
    const __m256i half = _mm256_maskz_loadu_epi16(mask, row + 2 * i);
    if constexpr (dtype == DType::f16) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
}

/// 12 bytes at the start of each lane, 16 codes of 6 bits, to 16 bytes.
inline __m512i spread6(__m512i v) {
  const __m512i places = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11));
  const __m512i pairs = _mm512_shuffle_epi8(v, places);  // u16: codes 0 and 1 from bit 0; 2 and 3 from bit 4
  const __m512i low = _mm512_srlv_epi16(pairs, _mm512_set1_epi32(4 << 16));
  return _mm512_or_si512(_mm512_and_si512(low, _mm512_set1_epi16(0x3f)),
                         _mm512_and_si512(_mm512_slli_epi16(low, 2), _mm512_set1_epi16(0x3f00)));
}

/// Of 16 codes of 2, 3 or 5 bits that begin at byte `even` of an even lane and `odd` of an odd one: for each two of
/// them the two bytes in which they lie, and from which bit of these on.
template <int bits, int even, int odd>
struct Spread {
  alignas(64) int8_t places[64];
  alignas(64) int16_t shifts[32];
  consteval Spread() : places{}, shifts{} {
    for (int p = 0; p < 32; ++p) {
      const int bit = p % 8 * 2 * bits;
      const int at = (p / 8 % 2 == 0 ? even : odd) + bit / 8;
      places[2 * p] = static_cast<int8_t>(at);
      places[2 * p + 1] = static_cast<int8_t>((at + 1) % 16);  // where there is none, none of its bits is wanted
      shifts[p] = static_cast<int16_t>(bit % 8);
    }
  }
};

/// These codes, to 16 bytes of a lane.
template <int bits, int even, int odd>
inline __m512i spread(__m512i v) {
  static constexpr Spread<bits, even, odd> kSpread;
  constexpr int mask = (1 << bits) - 1;
  const __m512i pairs = _mm512_shuffle_epi8(v, load_i(kSpread.places));
  const __m512i low = _mm512_srlv_epi16(pairs, load_i(kSpread.shifts));
  return _mm512_or_si512(_mm512_and_si512(low, _mm512_set1_epi16(mask)),
                         _mm512_and_si512(_mm512_slli_epi16(low, 8 - bits), _mm512_set1_epi16(mask << 8)));
}

/// E2M1 in bytes from 0 to 15: 2 * value + 12.
inline __m512i e2m1_codes(__m512i v) {
  const __m128i codes = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(codes), v);
}

/// v[0..7] + v[8..15] in pairs, then in pairs again: sums of two lanes each, of four vectors; one order everywhere.
inline __m128 sums_of(__m512 a, __m512 b, __m512 c, __m512 d) {
  const auto fold = [](__m512 v) { return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)); };
  const __m256 quads = _mm256_hadd_ps(_mm256_hadd_ps(fold(a), fold(b)), _mm256_hadd_ps(fold(c), fold(d)));
  return _mm_add_ps(_mm256_castps256_ps128(quads), _mm256_extractf128_ps(quads, 1));
}
inline float sum_of(__m512 v) { return _mm_cvtss_f32(sums_of(v, v, v, v)); }

}  // namespace saragossa::cpu::avx512
