#pragma once
// The vector interface of the kernels in simd/*.inl, on AVX2, FMA and F16C. The headers of the other sets have the
// same entries: W lanes of float (Vec) or of 32-bit integers (Int), comparisons as Mask.

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace saragossa::cpu::avx2 {
namespace {

using Vec = __m256;
using Int = __m256i;
using Mask = __m256;
constexpr int64_t W = 8;
constexpr int kTileM = 6;  // rows of the register tile; kTileM x 2 vectors

inline Vec zero() { return _mm256_setzero_ps(); }
inline Vec set1(float x) { return _mm256_set1_ps(x); }
inline Vec load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
inline Vec load_n(const float* p, int64_t n) {
  alignas(32) float tmp[W] = {};
  std::memcpy(tmp, p, static_cast<size_t>(n) * sizeof(float));
  return _mm256_load_ps(tmp);
}
inline void store_n(float* p, Vec v, int64_t n) {
  alignas(32) float tmp[W];
  _mm256_store_ps(tmp, v);
  std::memcpy(p, tmp, static_cast<size_t>(n) * sizeof(float));
}

inline Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
inline Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
inline Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
inline Vec div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
inline Vec neg_fma(Vec a, Vec b, Vec c) { return _mm256_fnmadd_ps(a, b, c); }
inline Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
inline Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
inline Vec round(Vec a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

inline Mask gt(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_GT_OQ); }
inline Mask lt(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
inline Mask eq(Vec a, Vec b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
inline Mask is_nan(Vec a) { return _mm256_cmp_ps(a, a, _CMP_UNORD_Q); }
inline Mask no_lanes() { return _mm256_setzero_ps(); }
inline Mask both(Mask a, Mask b) { return _mm256_and_ps(a, b); }
inline Mask either(Mask a, Mask b) { return _mm256_or_ps(a, b); }
/// a and not b.
inline Mask without(Mask a, Mask b) { return _mm256_andnot_ps(b, a); }
inline bool any(Mask m) { return _mm256_movemask_ps(m) != 0; }
inline Vec select(Mask m, Vec yes, Vec no) { return _mm256_blendv_ps(no, yes, m); }

inline Int iset1(uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
inline Int iload(const uint32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const Int*>(p)); }
inline void istore(uint32_t* p, Int v) { _mm256_storeu_si256(reinterpret_cast<Int*>(p), v); }
inline Int lanes() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
inline Int iadd(Int a, Int b) { return _mm256_add_epi32(a, b); }
inline Int isub(Int a, Int b) { return _mm256_sub_epi32(a, b); }
inline Int iand(Int a, Int b) { return _mm256_and_si256(a, b); }
inline Int ixor(Int a, Int b) { return _mm256_xor_si256(a, b); }
template <int n>
inline Int shl(Int a) {
  return _mm256_slli_epi32(a, n);
}
template <int n>
inline Int shr(Int a) {
  return _mm256_srli_epi32(a, n);
}
template <int n>
inline Int sar(Int a) {
  return _mm256_srai_epi32(a, n);
}
inline Mask ieq(Int a, Int b) { return _mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b)); }
inline Mask igt(Int a, Int b) { return _mm256_castsi256_ps(_mm256_cmpgt_epi32(a, b)); }
inline Int iselect(Mask m, Int yes, Int no) { return _mm256_blendv_epi8(no, yes, _mm256_castps_si256(m)); }
inline Vec as_float(Int a) { return _mm256_castsi256_ps(a); }
inline Int as_int(Vec a) { return _mm256_castps_si256(a); }
inline Int to_int(Vec a) { return _mm256_cvtps_epi32(a); }
inline Vec to_float(Int a) { return _mm256_cvtepi32_ps(a); }
inline Int truncate(Vec a) { return _mm256_cvttps_epi32(a); }
inline Int unsigned_min(Int a, Int b) { return _mm256_min_epu32(a, b); }
inline Mask unsigned_at_most(Int a, Int b) { return ieq(unsigned_min(a, b), a); }
/// Unsigned, to nearest even: both halves are exact, the sum is rounded once.
inline Vec unsigned_to_float(Int a) {
  return fma(to_float(shr<16>(a)), set1(65536.0f), to_float(iand(a, iset1(0xffffu))));
}
inline void mul_wide(Int a, uint32_t by, Int& high, Int& low) {
  const Int b = iset1(by);
  const Int even = _mm256_mul_epu32(a, b);
  const Int odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);
  high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
  low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
/// Lane i: bit i of the word.
inline Mask from_bits(uint32_t word) {
  const Int bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return ieq(iand(iset1(word), bit), bit);
}

inline Vec load_bf16(const uint16_t* p) {
  return as_float(shl<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))));
}
inline Vec load_bf16_n(const uint16_t* p, int64_t n) {
  alignas(16) uint16_t tmp[W] = {};
  std::memcpy(tmp, p, static_cast<size_t>(n) * sizeof(uint16_t));
  return load_bf16(tmp);
}
inline Vec load_u8(const uint8_t* p) {
  return to_float(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
/// Lanes hold 16 significant bits.
inline void store_low16(uint16_t* p, Int v) {
  const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
}

inline float hsum(Vec v) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
inline float hmax(Vec v) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
/// out[i] = sum of v[i].
inline void hsum4(float* out, Vec a, Vec b, Vec c, Vec d) {
  const Vec t = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1)));
}

/// p[4 i + j] = lane i of the j-th vector.
inline void interleave4(float* p, Vec a, Vec b, Vec c, Vec d) {
  const Vec ab0 = _mm256_unpacklo_ps(a, b), ab1 = _mm256_unpackhi_ps(a, b);
  const Vec cd0 = _mm256_unpacklo_ps(c, d), cd1 = _mm256_unpackhi_ps(c, d);
  const Vec r0 = _mm256_shuffle_ps(ab0, cd0, 0x44), r1 = _mm256_shuffle_ps(ab0, cd0, 0xee);
  const Vec r2 = _mm256_shuffle_ps(ab1, cd1, 0x44), r3 = _mm256_shuffle_ps(ab1, cd1, 0xee);
  store(p, _mm256_permute2f128_ps(r0, r1, 0x20));
  store(p + 8, _mm256_permute2f128_ps(r2, r3, 0x20));
  store(p + 16, _mm256_permute2f128_ps(r0, r1, 0x31));
  store(p + 24, _mm256_permute2f128_ps(r2, r3, 0x31));
}

/// Row i becomes column i.
inline void transpose(Vec (&r)[W]) {
  Vec t[W], u[W];
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    u[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    u[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    u[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    u[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
}

}  // namespace
}  // namespace saragossa::cpu::avx2
