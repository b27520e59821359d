#pragma once
// Loads of the NEON linears: scales as float, and a unit of 64 codes as int8.

#include <arm_neon.h>

#include <cstring>

#include "core/dtype.h"

// Full unrolling keeps arrays of vectors in registers.
#if defined(__clang__)
#define SARAGOSSA_UNROLL _Pragma("unroll")
#else
#define SARAGOSSA_UNROLL _Pragma("GCC unroll 16")
#endif

namespace saragossa::cpu::neon {

/// Four consecutive floats of a dense or scale row.
template <DType dtype>
inline float32x4_t load_floats(const uint8_t* row, int64_t i) {
  if constexpr (dtype == DType::f32) {
    return vreinterpretq_f32_u8(vld1q_u8(row + 4 * i));
  } else {
    const uint16x4_t half = vreinterpret_u16_u8(vld1_u8(row + 2 * i));
    if constexpr (dtype == DType::f16) return vcvt_f32_f16(vreinterpret_f16_u16(half));
    return vreinterpretq_f32_u32(vshll_n_u16(half, 16));
  }
}

/// One float, in all four lanes.
template <DType dtype>
inline float32x4_t load_float_everywhere(const uint8_t* row, int64_t i) {
  if constexpr (dtype == DType::f32) {
    return vld1q_dup_f32(reinterpret_cast<const float*>(row) + i);
  } else {
    const uint16x4_t half = vld1_dup_u16(reinterpret_cast<const uint16_t*>(row) + i);
    if constexpr (dtype == DType::f16) return vcvt_f32_f16(vreinterpret_f16_u16(half));
    return vreinterpretq_f32_u32(vshll_n_u16(half, 16));
  }
}

/// Floats [i, i + n) of a scale row, n at most 4; zeros behind them.
template <DType dtype>
inline float32x4_t load_scales(const uint8_t* row, int64_t i, int64_t n) {
  uint8_t some[16];
  if (n < 4) {
    std::memset(some, 0, sizeof(some));
    for (int64_t b = 0; b < n * size_of(dtype); ++b) some[b] = row[i * size_of(dtype) + b];
    row = some;
    i = 0;
  }
  return load_floats<dtype>(row, i);
}

inline float32x4_t load_scales(const uint8_t* row, DType dtype, int64_t i, int64_t n) {
  switch (dtype) {
    case DType::bf16: return load_scales<DType::bf16>(row, i, n);
    case DType::f16: return load_scales<DType::f16>(row, i, n);
    default: return load_scales<DType::f32>(row, i, n);
  }
}

/// What is added up with the activations' sums: linear_neon.h.
inline float32x4_t bias_of(float32x4_t bias, float32x4_t scale, int bits) {
  return bits == 8 ? vfmaq_n_f32(bias, scale, 128.0f) : bias;
}

/// A unit of codes. Orders, of values 0 to 63:
///   4 bits  evens below 32, odds below 32, evens from 32 on, odds from 32 on: the nibbles of two loads
///   6 bits  values 0, 1, 2, 3 modulo 4: three bytes hold four codes, ld3 parts them
///   8 bits  as they are, less 128
/// Values from 32 on are the last two vectors, or (6 bits) the last half of each.
struct Unit {
  int8x16_t v[4];
};

template <int bits>
inline Unit unpack(const uint8_t* p) {
  const auto code = [](uint8x16_t v) { return vreinterpretq_s8_u8(v); };
  if constexpr (bits == 4) {
    const uint8x16_t a = vld1q_u8(p), b = vld1q_u8(p + 16), nibble = vdupq_n_u8(15);
    return {{code(vandq_u8(a, nibble)), code(vshrq_n_u8(a, 4)), code(vandq_u8(b, nibble)), code(vshrq_n_u8(b, 4))}};
  } else if constexpr (bits == 6) {
    const uint8x16x3_t b = vld3q_u8(p);
    const uint8x16_t mask = vdupq_n_u8(63);
    return {{code(vandq_u8(b.val[0], mask)), code(vandq_u8(vsliq_n_u8(vshrq_n_u8(b.val[0], 6), b.val[1], 2), mask)),
             code(vandq_u8(vsliq_n_u8(vshrq_n_u8(b.val[1], 4), b.val[2], 4), mask)), code(vshrq_n_u8(b.val[2], 2))}};
  } else {
    const uint8x16_t top = vdupq_n_u8(128);
    return {{code(veorq_u8(vld1q_u8(p), top)), code(veorq_u8(vld1q_u8(p + 16), top)),
             code(veorq_u8(vld1q_u8(p + 32), top)), code(veorq_u8(vld1q_u8(p + 48), top))}};
  }
}

/// The last 32 values of a row whose groups of 32 are odd in number, or with half = false a whole unit. Activations
/// behind the row are 0.
template <int bits>
inline Unit unpack(const uint8_t* p, bool half) {
  uint8_t unit[64];
  if (half) {
    std::memset(unit, 0, sizeof(unit));
    std::memcpy(unit, p, 4 * bits);
    p = unit;
  }
  return unpack<bits>(p);
}

/// 64 int8 parts of activations in the order of unpack<bits>().
inline Unit in_unit_order(const int8_t* q, int bits) {
  if (bits == 4) {
    const int8x16x2_t a = vld2q_s8(q), b = vld2q_s8(q + 32);
    return {{a.val[0], a.val[1], b.val[0], b.val[1]}};
  }
  if (bits == 6) {
    const int8x16x4_t a = vld4q_s8(q);
    return {{a.val[0], a.val[1], a.val[2], a.val[3]}};
  }
  return {{vld1q_s8(q), vld1q_s8(q + 16), vld1q_s8(q + 32), vld1q_s8(q + 48)}};
}

/// Where the matmul form has quad j (four neighbours) of vector v of a unit: those of values below 32 first.
constexpr int quad_place(int bits, int v, int j) { return bits == 6 ? j / 2 * 8 + v * 2 + j % 2 : v * 4 + j; }

/// (v0 + v1) + (v2 + v3)
inline float sum_of(float32x4_t v) {
  const float32x4_t pairs = vpaddq_f32(v, v);
  return vgetq_lane_f32(vpaddq_f32(pairs, pairs), 0);
}

}  // namespace saragossa::cpu::neon
