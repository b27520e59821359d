#pragma once
// Loads of the NEON linears: scales as float, and a unit of 64 codes as int8.

#include <arm_neon.h>

#include <cstring>

#include "core/dtype.h"
#include "cpu/linear_kernels.h"

// Full unrolling keeps arrays of vectors in registers.
#if defined(__clang__)
#define SARAGOSSA_UNROLL _Pragma("unroll")
#else
#define SARAGOSSA_UNROLL _Pragma("GCC unroll 16")
#endif

namespace saragossa::cpu::neon {

/// Bytes of E8M0 in words, as floats: powers of two.
inline float32x4_t powers_of(uint32x4_t code) {
  const uint32x4_t power = vmaxq_u32(vshlq_n_u32(code, 23), vdupq_n_u32(0x00400000u));
  const uint32x4_t nan = vceqq_u32(code, vdupq_n_u32(255));
  return vreinterpretq_f32_u32(vbslq_u32(nan, vdupq_n_u32(0x7fc00000u), power));
}

/// Four consecutive floats of a dense or scale row; u8: E8M0.
template <DType dtype>
inline float32x4_t load_floats(const uint8_t* row, int64_t i) {
  if constexpr (dtype == DType::f32) {
    return vreinterpretq_f32_u8(vld1q_u8(row + 4 * i));
  } else if constexpr (dtype == DType::u8) {
    uint32_t four;
    std::memcpy(&four, row + i, 4);
    return powers_of(vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four))))));
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
  } else if constexpr (dtype == DType::u8) {
    return powers_of(vdupq_n_u32(row[i]));
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
    case DType::u8: return load_scales<DType::u8>(row, i, n);
    default: return load_scales<DType::f32>(row, i, n);
  }
}

/// Of E2M1 half the stored scale: its codes are twice the values.
inline float32x4_t scale_of(float32x4_t scale, int bits) { return bits == kE2M1 ? vmulq_n_f32(scale, 0.5f) : scale; }

/// What is added up with the activations' sums: linear_neon.h.
inline float32x4_t bias_of(float32x4_t bias, float32x4_t scale, int bits) {
  if (bits == kE2M1) return vdupq_n_f32(0.0f);
  return bits == 8 ? vfmaq_n_f32(bias, scale, 128.0f) : bias;
}

/// Of 16 codes of 2, 3 or 5 bits from byte `first` on: for each two of them the two bytes in which they lie, and how
/// far to the left they are moved.
template <int bits, int first>
struct Spread {
  uint8_t places[16];
  int16_t shifts[8];
  consteval Spread() : places{}, shifts{} {
    for (int p = 0; p < 8; ++p) {
      const int bit = 2 * p * bits;
      places[2 * p] = static_cast<uint8_t>(first + bit / 8);
      places[2 * p + 1] = static_cast<uint8_t>(first + bit / 8 + 1);  // where there is none, none of its bits is wanted
      shifts[p] = static_cast<int16_t>(-(bit % 8));
    }
  }
};

/// These codes in bytes.
template <int bits, int first>
inline uint8x16_t spread(uint8x16_t v) {
  static constexpr Spread<bits, first> kSpread;
  constexpr uint16_t mask = (1 << bits) - 1;
  const uint16x8_t pairs = vreinterpretq_u16_u8(vqtbl1q_u8(v, vld1q_u8(kSpread.places)));
  const uint16x8_t low = vshlq_u16(pairs, vld1q_s16(kSpread.shifts));
  return vreinterpretq_u8_u16(
      vorrq_u16(vandq_u16(low, vdupq_n_u16(mask)), vandq_u16(vshlq_n_u16(low, 8 - bits), vdupq_n_u16(mask << 8))));
}

/// E2M1 in bytes from 0 to 15: 2 * value.
inline int8x16_t e2m1_codes(uint8x16_t v) {
  const int8x16_t codes = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  return vqtbl1q_s8(codes, v);
}

/// A unit of codes. Orders, of values 0 to 63:
///   4 bits  evens below 32, odds below 32, evens from 32 on, odds from 32 on: the nibbles of two loads
///   6 bits  values 0, 1, 2, 3 modulo 4: three bytes hold four codes, ld3 parts them
///   2, 3, 5 bits  as they are
///   8 bits  as they are, less 128
///   E2M1    as 4 bits; codes become 2 * value, with their sign
/// Values from 32 on are the last two vectors, or (6 bits) the last half of each.
struct Unit {
  int8x16_t v[4];
};

template <int bits>
inline Unit unpack(const uint8_t* p) {
  const auto code = [](uint8x16_t v) { return vreinterpretq_s8_u8(v); };
  if constexpr (bits == kE2M1) {
    const uint8x16_t a = vld1q_u8(p), b = vld1q_u8(p + 16), nibble = vdupq_n_u8(15);
    return {{e2m1_codes(vandq_u8(a, nibble)), e2m1_codes(vshrq_n_u8(a, 4)), e2m1_codes(vandq_u8(b, nibble)),
             e2m1_codes(vshrq_n_u8(b, 4))}};
  } else if constexpr (bits == 2) {
    const uint8x16_t v = vld1q_u8(p);
    return {{code(spread<2, 0>(v)), code(spread<2, 4>(v)), code(spread<2, 8>(v)), code(spread<2, 12>(v))}};
  } else if constexpr (bits == 3) {
    const uint8x16_t a = vld1q_u8(p), b = vld1q_u8(p + 8);
    return {{code(spread<3, 0>(a)), code(spread<3, 6>(a)), code(spread<3, 4>(b)), code(spread<3, 10>(b))}};
  } else if constexpr (bits == 5) {
    return {{code(spread<5, 0>(vld1q_u8(p))), code(spread<5, 0>(vld1q_u8(p + 10))),
             code(spread<5, 0>(vld1q_u8(p + 20))), code(spread<5, 6>(vld1q_u8(p + 24)))}};
  } else if constexpr (bits == 4) {
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
    std::memcpy(unit, p, 4 * width_of(bits));
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
