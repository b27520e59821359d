#pragma once
// The vector interface of the kernels in simd/*.inl, on Armv8-A Advanced SIMD. avx2.h explains the entries.

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace saragossa::cpu::neon {
namespace {

using Vec = float32x4_t;
using Int = uint32x4_t;
using Mask = uint32x4_t;
constexpr int64_t W = 4;
constexpr int kTileM = 8;

inline Vec zero() { return vdupq_n_f32(0.0f); }
inline Vec set1(float x) { return vdupq_n_f32(x); }
inline Vec load(const float* p) { return vld1q_f32(p); }
inline void store(float* p, Vec v) { vst1q_f32(p, v); }
inline Vec load_n(const float* p, int64_t n) {
  float tmp[W] = {};
  std::memcpy(tmp, p, static_cast<size_t>(n) * sizeof(float));
  return vld1q_f32(tmp);
}
inline void store_n(float* p, Vec v, int64_t n) {
  float tmp[W];
  vst1q_f32(tmp, v);
  std::memcpy(p, tmp, static_cast<size_t>(n) * sizeof(float));
}

inline Vec add(Vec a, Vec b) { return vaddq_f32(a, b); }
inline Vec sub(Vec a, Vec b) { return vsubq_f32(a, b); }
inline Vec mul(Vec a, Vec b) { return vmulq_f32(a, b); }
inline Vec div(Vec a, Vec b) { return vdivq_f32(a, b); }
inline Vec fma(Vec a, Vec b, Vec c) { return vfmaq_f32(c, a, b); }
inline Vec neg_fma(Vec a, Vec b, Vec c) { return vfmsq_f32(c, a, b); }
inline Vec max(Vec a, Vec b) { return vmaxq_f32(a, b); }
inline Vec min(Vec a, Vec b) { return vminq_f32(a, b); }
inline Vec round(Vec a) { return vrndnq_f32(a); }

inline Mask gt(Vec a, Vec b) { return vcgtq_f32(a, b); }
inline Mask lt(Vec a, Vec b) { return vcltq_f32(a, b); }
inline Mask eq(Vec a, Vec b) { return vceqq_f32(a, b); }
inline Mask is_nan(Vec a) { return vmvnq_u32(vceqq_f32(a, a)); }
inline Mask no_lanes() { return vdupq_n_u32(0); }
inline Mask both(Mask a, Mask b) { return vandq_u32(a, b); }
inline Mask either(Mask a, Mask b) { return vorrq_u32(a, b); }
inline Mask without(Mask a, Mask b) { return vbicq_u32(a, b); }
inline bool any(Mask m) { return vmaxvq_u32(m) != 0; }
inline Vec select(Mask m, Vec yes, Vec no) { return vbslq_f32(m, yes, no); }

inline Int iset1(uint32_t x) { return vdupq_n_u32(x); }
inline Int iload(const uint32_t* p) { return vld1q_u32(p); }
inline void istore(uint32_t* p, Int v) { vst1q_u32(p, v); }
inline Int lanes() {
  constexpr uint32_t first[W] = {0, 1, 2, 3};
  return vld1q_u32(first);
}
inline Int iadd(Int a, Int b) { return vaddq_u32(a, b); }
inline Int isub(Int a, Int b) { return vsubq_u32(a, b); }
inline Int iand(Int a, Int b) { return vandq_u32(a, b); }
inline Int ixor(Int a, Int b) { return veorq_u32(a, b); }
template <int n>
inline Int shl(Int a) {
  return vshlq_n_u32(a, n);
}
template <int n>
inline Int shr(Int a) {
  return vshrq_n_u32(a, n);
}
template <int n>
inline Int sar(Int a) {
  return vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(a), n));
}
inline Mask ieq(Int a, Int b) { return vceqq_u32(a, b); }
inline Mask igt(Int a, Int b) { return vcgtq_s32(vreinterpretq_s32_u32(a), vreinterpretq_s32_u32(b)); }
inline Int iselect(Mask m, Int yes, Int no) { return vbslq_u32(m, yes, no); }
inline Vec as_float(Int a) { return vreinterpretq_f32_u32(a); }
inline Int as_int(Vec a) { return vreinterpretq_u32_f32(a); }
inline Int to_int(Vec a) { return vreinterpretq_u32_s32(vcvtnq_s32_f32(a)); }
inline Vec to_float(Int a) { return vcvtq_f32_s32(vreinterpretq_s32_u32(a)); }
inline Int truncate(Vec a) { return vreinterpretq_u32_s32(vcvtq_s32_f32(a)); }
inline Int unsigned_min(Int a, Int b) { return vminq_u32(a, b); }
inline Mask unsigned_at_most(Int a, Int b) { return vcleq_u32(a, b); }
inline Vec unsigned_to_float(Int a) { return vcvtq_f32_u32(a); }
inline void mul_wide(Int a, uint32_t by, Int& high, Int& low) {
  const uint32x2_t b = vdup_n_u32(by);
  const uint32x4_t first = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(a), b));
  const uint32x4_t second = vreinterpretq_u32_u64(vmull_u32(vget_high_u32(a), b));
  low = vuzp1q_u32(first, second);
  high = vuzp2q_u32(first, second);
}
inline Mask from_bits(uint32_t word) {
  constexpr uint32_t bits[W] = {1, 2, 4, 8};
  return vtstq_u32(vdupq_n_u32(word), vld1q_u32(bits));
}

inline Vec load_bf16(const uint16_t* p) { return as_float(vshll_n_u16(vld1_u16(p), 16)); }
inline Vec load_bf16_n(const uint16_t* p, int64_t n) {
  uint16_t tmp[W] = {};
  std::memcpy(tmp, p, static_cast<size_t>(n) * sizeof(uint16_t));
  return load_bf16(tmp);
}
inline Vec load_u8(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof word);
  return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(word)))));
}
inline void store_low16(uint16_t* p, Int v) { vst1_u16(p, vmovn_u32(v)); }

inline float hsum(Vec v) { return vaddvq_f32(v); }
inline float hmax(Vec v) { return vmaxvq_f32(v); }
inline void hsum4(float* out, Vec a, Vec b, Vec c, Vec d) {
  vst1q_f32(out, vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d)));
}

inline void interleave4(float* p, Vec a, Vec b, Vec c, Vec d) { vst4q_f32(p, (float32x4x4_t{{a, b, c, d}})); }

inline void transpose(Vec (&r)[W]) {
  float rows[W * W];
  interleave4(rows, r[0], r[1], r[2], r[3]);
  for (int i = 0; i < W; ++i) r[i] = load(rows + i * W);
}

}  // namespace
}  // namespace saragossa::cpu::neon
