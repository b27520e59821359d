#pragma once
// The vector interface of the kernels in simd/*.inl, on AVX-512 F, BW, VL and DQ. avx2.h explains the entries.

#include <immintrin.h>

#include <cstdint>

namespace saragossa::cpu::avx512 {
namespace {

using Vec = __m512;
using Int = __m512i;
using Mask = __mmask16;
constexpr int64_t W = 16;
constexpr int kTileM = 12;

inline Mask first(int64_t n) { return static_cast<Mask>((1u << n) - 1u); }

inline Vec zero() { return _mm512_setzero_ps(); }
inline Vec set1(float x) { return _mm512_set1_ps(x); }
inline Vec load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
inline Vec load_n(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(first(n), p); }
inline void store_n(float* p, Vec v, int64_t n) { _mm512_mask_storeu_ps(p, first(n), v); }

inline Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
inline Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
inline Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
inline Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec neg_fma(Vec a, Vec b, Vec c) { return _mm512_fnmadd_ps(a, b, c); }
inline Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
inline Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
inline Vec round(Vec a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

inline Mask gt(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
inline Mask lt(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
inline Mask eq(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
inline Mask is_nan(Vec a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
inline Mask no_lanes() { return 0; }
inline Mask both(Mask a, Mask b) { return static_cast<Mask>(a & b); }
inline Mask either(Mask a, Mask b) { return static_cast<Mask>(a | b); }
inline Mask without(Mask a, Mask b) { return static_cast<Mask>(a & ~b); }
inline bool any(Mask m) { return m != 0; }
inline Vec select(Mask m, Vec yes, Vec no) { return _mm512_mask_blend_ps(m, no, yes); }

inline Int iset1(uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
inline Int iload(const uint32_t* p) { return _mm512_loadu_si512(p); }
inline void istore(uint32_t* p, Int v) { _mm512_storeu_si512(p, v); }
inline Int lanes() { return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0); }
inline Int iadd(Int a, Int b) { return _mm512_add_epi32(a, b); }
inline Int isub(Int a, Int b) { return _mm512_sub_epi32(a, b); }
inline Int iand(Int a, Int b) { return _mm512_and_si512(a, b); }
inline Int ixor(Int a, Int b) { return _mm512_xor_si512(a, b); }
template <int n>
inline Int shl(Int a) {
  return _mm512_slli_epi32(a, n);
}
template <int n>
inline Int shr(Int a) {
  return _mm512_srli_epi32(a, n);
}
template <int n>
inline Int sar(Int a) {
  return _mm512_srai_epi32(a, n);
}
inline Mask ieq(Int a, Int b) { return _mm512_cmpeq_epi32_mask(a, b); }
inline Mask igt(Int a, Int b) { return _mm512_cmpgt_epi32_mask(a, b); }
inline Int iselect(Mask m, Int yes, Int no) { return _mm512_mask_blend_epi32(m, no, yes); }
inline Vec as_float(Int a) { return _mm512_castsi512_ps(a); }
inline Int as_int(Vec a) { return _mm512_castps_si512(a); }
inline Int to_int(Vec a) { return _mm512_cvtps_epi32(a); }
inline Vec to_float(Int a) { return _mm512_cvtepi32_ps(a); }
inline Int truncate(Vec a) { return _mm512_cvttps_epi32(a); }
inline Int unsigned_min(Int a, Int b) { return _mm512_min_epu32(a, b); }
inline Mask unsigned_at_most(Int a, Int b) { return ieq(unsigned_min(a, b), a); }
inline Vec unsigned_to_float(Int a) {
  return fma(to_float(shr<16>(a)), set1(65536.0f), to_float(iand(a, iset1(0xffffu))));
}
inline void mul_wide(Int a, uint32_t by, Int& high, Int& low) {
  const Int b = iset1(by);
  const Int even = _mm512_mul_epu32(a, b);
  const Int odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), b);
  high = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
  low = _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
}
inline Mask from_bits(uint32_t word) { return static_cast<Mask>(word); }

inline Vec load_bf16(const uint16_t* p) {
  return as_float(shl<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))));
}
inline Vec load_bf16_n(const uint16_t* p, int64_t n) {
  return as_float(shl<16>(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first(n), p))));
}
inline Vec load_u8(const uint8_t* p) {
  return to_float(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline void store_low16(uint16_t* p, Int v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(v));
}

/// Lanes 0..7 and 8..15.
inline __m256 low_half(Vec v) { return _mm512_castps512_ps256(v); }
inline __m256 high_half(Vec v) { return _mm512_extractf32x8_ps(v, 1); }

inline float hsum(Vec v) {
  const __m256 half = _mm256_add_ps(low_half(v), high_half(v));
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
inline float hmax(Vec v) {
  const __m256 half = _mm256_max_ps(low_half(v), high_half(v));
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
inline void hsum4(float* out, Vec a, Vec b, Vec c, Vec d) {
  const __m256 ab = _mm256_hadd_ps(_mm256_add_ps(low_half(a), high_half(a)), _mm256_add_ps(low_half(b), high_half(b)));
  const __m256 cd = _mm256_hadd_ps(_mm256_add_ps(low_half(c), high_half(c)), _mm256_add_ps(low_half(d), high_half(d)));
  const __m256 t = _mm256_hadd_ps(ab, cd);
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1)));
}

/// r[i] of each group of four 128-bit lanes: lane i of the four vectors, as a transpose of 4 x 4 lanes.
inline void transpose_lanes(Vec& a, Vec& b, Vec& c, Vec& d) {
  const Vec ab0 = _mm512_shuffle_f32x4(a, b, 0x44), ab1 = _mm512_shuffle_f32x4(a, b, 0xee);
  const Vec cd0 = _mm512_shuffle_f32x4(c, d, 0x44), cd1 = _mm512_shuffle_f32x4(c, d, 0xee);
  a = _mm512_shuffle_f32x4(ab0, cd0, 0x88);
  b = _mm512_shuffle_f32x4(ab0, cd0, 0xdd);
  c = _mm512_shuffle_f32x4(ab1, cd1, 0x88);
  d = _mm512_shuffle_f32x4(ab1, cd1, 0xdd);
}

/// Within each 128-bit lane: r[i] holds float i of the four vectors.
inline void transpose_floats(Vec& a, Vec& b, Vec& c, Vec& d) {
  const Vec ab0 = _mm512_unpacklo_ps(a, b), ab1 = _mm512_unpackhi_ps(a, b);
  const Vec cd0 = _mm512_unpacklo_ps(c, d), cd1 = _mm512_unpackhi_ps(c, d);
  a = _mm512_shuffle_ps(ab0, cd0, 0x44);
  b = _mm512_shuffle_ps(ab0, cd0, 0xee);
  c = _mm512_shuffle_ps(ab1, cd1, 0x44);
  d = _mm512_shuffle_ps(ab1, cd1, 0xee);
}

inline void interleave4(float* p, Vec a, Vec b, Vec c, Vec d) {
  transpose_floats(a, b, c, d);
  transpose_lanes(a, b, c, d);
  store(p, a);
  store(p + 16, b);
  store(p + 32, c);
  store(p + 48, d);
}

inline void transpose(Vec (&r)[W]) {
  for (int i = 0; i < 16; i += 4) transpose_floats(r[i], r[i + 1], r[i + 2], r[i + 3]);
  for (int i = 0; i < 4; ++i) transpose_lanes(r[i], r[i + 4], r[i + 8], r[i + 12]);
}

}  // namespace
}  // namespace saragossa::cpu::avx512
