#pragma once
// AVX-512 on machines without it: <immintrin.h> for the kernels of csrc/cpu/avx512, over SIMDe, whose 512-bit forms
// use AVX2 and FMA. What SIMDe 0.7.4 lacks is here, lane by lane. Slow, and right.

#include_next <immintrin.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#include <cmath>
#include <cstring>

namespace emulate {

template <class T, int n>
struct Lanes {
  T v[n];
};

template <class T, int n, class V>
inline Lanes<T, n> open(const V& v) {
  static_assert(sizeof(V) == sizeof(Lanes<T, n>));
  Lanes<T, n> out;
  std::memcpy(&out, &v, sizeof out);
  return out;
}

template <class V, class T, int n>
inline V close(const Lanes<T, n>& lanes) {
  static_assert(sizeof(V) == sizeof(lanes));
  V out;
  std::memcpy(&out, &lanes, sizeof out);
  return out;
}

inline simde__m512 maskz_loadu_ps(simde__mmask16 k, const void* p) {
  Lanes<float, 16> out{};
  for (int i = 0; i < 16; ++i)
    if (k >> i & 1) out.v[i] = static_cast<const float*>(p)[i];
  return close<simde__m512>(out);
}
inline void mask_storeu_ps(void* p, simde__mmask16 k, simde__m512 a) {
  const auto in = open<float, 16>(a);
  for (int i = 0; i < 16; ++i)
    if (k >> i & 1) static_cast<float*>(p)[i] = in.v[i];
}
inline simde__m256i maskz_loadu_epi16(simde__mmask16 k, const void* p) {
  Lanes<uint16_t, 16> out{};
  for (int i = 0; i < 16; ++i)
    if (k >> i & 1) out.v[i] = static_cast<const uint16_t*>(p)[i];
  return close<simde__m256i>(out);
}
inline simde__m256i cvtepi32_epi16(simde__m512i a) {
  const auto in = open<int32_t, 16>(a);
  Lanes<int16_t, 16> out;
  for (int i = 0; i < 16; ++i) out.v[i] = static_cast<int16_t>(in.v[i]);
  return close<simde__m256i>(out);
}
inline simde__m512i cvtepu16_epi32(simde__m256i a) {
  const auto in = open<uint16_t, 16>(a);
  Lanes<int32_t, 16> out;
  for (int i = 0; i < 16; ++i) out.v[i] = in.v[i];
  return close<simde__m512i>(out);
}
inline simde__m512 cvtepi32_ps(simde__m512i a) {
  const auto in = open<int32_t, 16>(a);
  Lanes<float, 16> out;
  for (int i = 0; i < 16; ++i) out.v[i] = static_cast<float>(in.v[i]);
  return close<simde__m512>(out);
}
/// What does not fit is the most negative integer, as in hardware.
inline int32_t to_int(float x) {
  return x >= -2147483648.0f && x < 2147483648.0f ? static_cast<int32_t>(x) : INT32_MIN;
}
inline simde__m512i cvtps_epi32(simde__m512 a) {
  const auto in = open<float, 16>(a);
  Lanes<int32_t, 16> out;
  for (int i = 0; i < 16; ++i) out.v[i] = to_int(std::nearbyint(in.v[i]));
  return close<simde__m512i>(out);
}
inline simde__m512i cvttps_epi32(simde__m512 a) {
  const auto in = open<float, 16>(a);
  Lanes<int32_t, 16> out;
  for (int i = 0; i < 16; ++i) out.v[i] = to_int(in.v[i]);
  return close<simde__m512i>(out);
}
inline simde__m256 extractf32x8_ps(simde__m512 a, int half) {
  const auto in = open<float, 16>(a);
  Lanes<float, 8> out;
  for (int i = 0; i < 8; ++i) out.v[i] = in.v[8 * half + i];
  return close<simde__m256>(out);
}
inline simde__m512 shuffle_f32x4(simde__m512 a, simde__m512 b, int how) {
  const auto x = open<float, 16>(a), y = open<float, 16>(b);
  Lanes<float, 16> out;
  for (int lane = 0; lane < 4; ++lane)
    for (int i = 0; i < 4; ++i) out.v[4 * lane + i] = (lane < 2 ? x : y).v[4 * (how >> (2 * lane) & 3) + i];
  return close<simde__m512>(out);
}
inline simde__m512i srai_epi32(simde__m512i a, unsigned n) {
  const auto in = open<int32_t, 16>(a);
  Lanes<int32_t, 16> out;
  for (int i = 0; i < 16; ++i) out.v[i] = in.v[i] >> (n > 31 ? 31 : n);
  return close<simde__m512i>(out);
}

inline simde__m512i maskz_loadu_epi8(uint64_t k, const void* p) {
  Lanes<uint8_t, 64> out{};
  for (int i = 0; i < 64; ++i)
    if (k >> i & 1) out.v[i] = static_cast<const uint8_t*>(p)[i];
  return close<simde__m512i>(out);
}
inline simde__m128i cvtepi32_epi8(simde__m512i a) {
  const auto in = open<int32_t, 16>(a);
  Lanes<int8_t, 16> out;
  for (int i = 0; i < 16; ++i) out.v[i] = static_cast<int8_t>(in.v[i]);
  return close<simde__m128i>(out);
}
inline simde__m512 permutevar_ps(simde__m512 a, simde__m512i order) {
  const auto in = open<float, 16>(a);
  const auto at = open<uint32_t, 16>(order);
  Lanes<float, 16> out;
  for (int i = 0; i < 16; ++i) out.v[i] = in.v[i / 4 * 4 + static_cast<int>(at.v[i] & 3u)];
  return close<simde__m512>(out);
}
inline simde__m512 cvtph_ps(simde__m256i a) {
  const auto in = open<__m128i, 2>(a);
  Lanes<__m256, 2> out;
  for (int i = 0; i < 2; ++i) out.v[i] = _mm256_cvtph_ps(in.v[i]);
  return close<simde__m512>(out);
}

}  // namespace emulate

#define _mm512_maskz_loadu_ps emulate::maskz_loadu_ps
#define _mm512_mask_storeu_ps emulate::mask_storeu_ps
#define _mm256_maskz_loadu_epi16 emulate::maskz_loadu_epi16
#define _mm512_cvtepi32_epi16 emulate::cvtepi32_epi16
#define _mm512_cvtepu16_epi32 emulate::cvtepu16_epi32
#define _mm512_cvtepi32_ps emulate::cvtepi32_ps
#define _mm512_cvtps_epi32 emulate::cvtps_epi32
#define _mm512_cvttps_epi32 emulate::cvttps_epi32
#define _mm512_extractf32x8_ps emulate::extractf32x8_ps
#define _mm512_shuffle_f32x4 emulate::shuffle_f32x4
#define _mm512_srai_epi32 emulate::srai_epi32
#define _mm512_maskz_loadu_epi8 emulate::maskz_loadu_epi8
#define _mm512_cvtepi32_epi8 emulate::cvtepi32_epi8
#define _mm512_permutevar_ps emulate::permutevar_ps
#define _mm512_cvtph_ps emulate::cvtph_ps
