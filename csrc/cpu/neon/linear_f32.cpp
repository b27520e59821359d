// Linears with float32 activations: y[r, o] = sum over k of w[o, k] * x[r, k], w as stored.
//
// Dense weights are converted to float in registers; affine ones are code * scale + bias, rounded once (the
// reference's value), those of mxfp4 and mxfp8 exact. Eight lanes, two vectors, hold the sums of k mod 8, fma'd in
// ascending order of k, so a result depends on neither the number of rows nor the chunk. The form for any number of
// rows: exact mode continues a sequence with the bits of a fresh prefill.
//
// Ownership: one thread has outputs [begin, end).

#include <algorithm>
#include <cstring>

#include "cpu/neon/linear_neon.h"
#include "cpu/neon/linear_unpack.h"

namespace saragossa::cpu::neon {
namespace {

constexpr int64_t kSpan = 32;  // values decoded at once

/// Codes of 32 consecutive values, in order.
template <int bits>
inline uint8x16x2_t codes32(const uint8_t* p) {
  if constexpr (bits == 4) {
    const uint8x16_t v = vld1q_u8(p);
    const uint8x16_t even = vandq_u8(v, vdupq_n_u8(15)), odd = vshrq_n_u8(v, 4);
    return {{vzip1q_u8(even, odd), vzip2q_u8(even, odd)}};
  } else if constexpr (bits == 2 || bits == 3) {
    uint8_t few[16] = {};
    std::memcpy(few, p, 4 * bits);
    return {{spread<bits, 0>(vld1q_u8(few)), spread<bits, 2 * bits>(vld1q_u8(few))}};
  } else if constexpr (bits == 5) {
    return {{spread<5, 0>(vld1q_u8(p)), spread<5, 6>(vld1q_u8(p + 4))}};
  } else if constexpr (bits == 6) {
    const uint8x8x3_t b = vld3_u8(p);  // 24 bytes: 4 codes in each 3
    const uint8x8_t mask = vdup_n_u8(63);
    const uint8x8_t c0 = vand_u8(b.val[0], mask), c3 = vshr_n_u8(b.val[2], 2);
    const uint8x8_t c1 = vand_u8(vsli_n_u8(vshr_n_u8(b.val[0], 6), b.val[1], 2), mask);
    const uint8x8_t c2 = vand_u8(vsli_n_u8(vshr_n_u8(b.val[1], 4), b.val[2], 4), mask);
    const uint16x8_t first = vreinterpretq_u16_u8(vcombine_u8(vzip1_u8(c0, c1), vzip2_u8(c0, c1)));
    const uint16x8_t second = vreinterpretq_u16_u8(vcombine_u8(vzip1_u8(c2, c3), vzip2_u8(c2, c3)));
    return {{vreinterpretq_u8_u16(vzip1q_u16(first, second)), vreinterpretq_u8_u16(vzip2q_u16(first, second))}};
  } else {
    return {{vld1q_u8(p), vld1q_u8(p + 16)}};
  }
}

/// E2M1 or E4M3 of 32 consecutive values as floats.
template <int bits>
inline void floats32(const uint8_t* p, float32x4_t v[8]) {
  const auto store = [&](int i, uint16x8_t half, float factor) {
    const float16x8_t values = vreinterpretq_f16_u16(half);
    v[2 * i] = vmulq_n_f32(vcvt_f32_f16(vget_low_f16(values)), factor);
    v[2 * i + 1] = vmulq_n_f32(vcvt_high_f32_f16(values), factor);
  };
  if constexpr (bits == kE2M1) {
    // Top bytes of the values as half; the other bytes are 0.
    const uint8x16_t tops = {0,    0x38, 0x3c, 0x3e, 0x40, 0x42, 0x44, 0x46,
                             0x80, 0xb8, 0xbc, 0xbe, 0xc0, 0xc2, 0xc4, 0xc6};
    const uint8x16x2_t codes = codes32<4>(p);
    SARAGOSSA_UNROLL
    for (int i = 0; i < 2; ++i) {
      const uint8x16_t top = vqtbl1q_u8(tops, codes.val[i]);
      store(2 * i, vshll_n_u8(vget_low_u8(top), 8), 1.0f);
      store(2 * i + 1, vshll_high_n_u8(top, 8), 1.0f);
    }
  } else {
    SARAGOSSA_UNROLL
    for (int i = 0; i < 4; ++i) {
      // As half they have the right exponent less 8, subnormal ones too; 0x7f is NaN.
      const int16x8_t wide = vreinterpretq_s16_u16(vshll_n_u8(vld1_u8(p + 8 * i), 8));
      const uint16x8_t half = vandq_u16(vreinterpretq_u16_s16(vshrq_n_s16(wide, 1)), vdupq_n_u16(0xbfff));
      const uint16x8_t nan = vceqq_u16(vandq_u16(half, vdupq_n_u16(0x7fff)), vdupq_n_u16(0x3f80));
      store(i, vorrq_u16(half, nan), 256.0f);
    }
  }
}

/// Values [k, k + 32) of one output; bits 0: dense.
template <int bits, DType dtype>
inline void weights32(const Matrix& w, int64_t o, int64_t k, float32x4_t v[8]) {
  if constexpr (bits == 0) {
    const uint8_t* row = w.data + o * w.in * size_of(dtype);
    SARAGOSSA_UNROLL
    for (int i = 0; i < 8; ++i) v[i] = load_floats<dtype>(row, k + 4 * i);
  } else if constexpr (dtype == DType::u8) {
    floats32<bits>(w.data + (o * w.in + k) * width_of(bits) / 8, v);
    const float32x4_t scale = load_float_everywhere<dtype>(w.scales, (o * w.in + k) / w.group);
    SARAGOSSA_UNROLL
    for (int i = 0; i < 8; ++i) v[i] = vmulq_f32(v[i], scale);
  } else {
    const uint8x16x2_t codes = codes32<bits>(w.data + (o * w.in + k) * bits / 8);
    const int64_t g = (o * w.in + k) / w.group;
    const float32x4_t scale = load_float_everywhere<dtype>(w.scales, g);
    const float32x4_t bias = load_float_everywhere<dtype>(w.biases, g);
    SARAGOSSA_UNROLL
    for (int i = 0; i < 2; ++i) {
      const uint16x8_t low = vmovl_u8(vget_low_u8(codes.val[i])), high = vmovl_high_u8(codes.val[i]);
      const uint32x4_t wide[4] = {vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low), vmovl_u16(vget_low_u16(high)),
                                  vmovl_high_u16(high)};
      SARAGOSSA_UNROLL
      for (int j = 0; j < 4; ++j) v[4 * i + j] = vfmaq_f32(bias, vcvtq_f32_u32(wide[j]), scale);
    }
  }
}

/// Values [k, in) of a dense row, whose length need be no multiple of 32.
__attribute__((noinline)) float add_tail(const Matrix& w, int64_t o, int64_t k, const float* x, float total) {
  for (; k < w.in; ++k) total += load_float(w.data, w.dtype, o * w.in + k) * x[k];
  return total;
}

template <int bits, DType dtype, int outs, int rows>
void dot_block(const Matrix& w, const float* x, int64_t o, const OutTile& out, int64_t r0) {
  float32x4_t sum[outs][rows][2];
  SARAGOSSA_UNROLL
  for (int i = 0; i < outs; ++i) {
    SARAGOSSA_UNROLL
    for (int r = 0; r < rows; ++r) sum[i][r][0] = sum[i][r][1] = vdupq_n_f32(0.0f);
  }
  int64_t k = 0;
  for (; k + kSpan <= w.in; k += kSpan) {
    SARAGOSSA_UNROLL
    for (int i = 0; i < outs; ++i) {
      float32x4_t v[8];
      weights32<bits, dtype>(w, o + i, k, v);
      SARAGOSSA_UNROLL
      for (int r = 0; r < rows; ++r) {
        SARAGOSSA_UNROLL
        for (int j = 0; j < 8; ++j)
          sum[i][r][j % 2] = vfmaq_f32(sum[i][r][j % 2], v[j], vld1q_f32(x + (r0 + r) * w.in + k + 4 * j));
      }
    }
  }
  SARAGOSSA_UNROLL
  for (int i = 0; i < outs; ++i) {
    SARAGOSSA_UNROLL
    for (int r = 0; r < rows; ++r) {
      float total = sum_of(sum[i][r][0]) + sum_of(sum[i][r][1]);
      if (bits == 0 && k < w.in) total = add_tail(w, o + i, k, x + (r0 + r) * w.in, total);
      out.y[(r0 + r) * out.stride + o + i - out.begin] = total;
    }
  }
}

template <int bits, DType dtype, int rows>
void dot_rows(const Matrix& w, const float* x, int64_t o, int64_t n, const OutTile& out, int64_t r0) {
  constexpr int outs = rows == 4 ? 2 : 4;  // 8 to 16 sums at once hide the latency of the fma
  int64_t i = 0;
  for (; i + outs <= n; i += outs) dot_block<bits, dtype, outs, rows>(w, x, o + i, out, r0);
  for (; i < n; ++i) dot_block<bits, dtype, 1, rows>(w, x, o + i, out, r0);
}

template <int bits, DType dtype>
void dot_typed(const Matrix& w, const float* x, int64_t rows, const OutTile& out) {
  constexpr int64_t kBlock = 4;  // outputs whose weights stay in the first cache while all the rows pass
  for (int64_t o = out.begin; o < out.end; o += kBlock) {
    const int64_t n = std::min(kBlock, out.end - o);
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) dot_rows<bits, dtype, 4>(w, x, o, n, out, r);
    for (; r + 2 <= rows; r += 2) dot_rows<bits, dtype, 2>(w, x, o, n, out, r);
    if (r < rows) dot_rows<bits, dtype, 1>(w, x, o, n, out, r);
  }
}

template <int bits>
void dot_bits(const Matrix& w, const float* x, int64_t rows, const OutTile& out) {
  if constexpr (bits == kE2M1 || bits == kE4M3) {
    return dot_typed<bits, DType::u8>(w, x, rows, out);
  } else {
    switch (w.dtype) {
      case DType::bf16: return dot_typed<bits, DType::bf16>(w, x, rows, out);
      case DType::f16: return dot_typed<bits, DType::f16>(w, x, rows, out);
      default: return dot_typed<bits, DType::f32>(w, x, rows, out);
    }
  }
}

}  // namespace

void dot_f32(const Matrix& w, const float* x, int64_t rows, const OutTile& out) {
  switch (code_of(w)) {
    case 0: return dot_bits<0>(w, x, rows, out);
    case 2: return dot_bits<2>(w, x, rows, out);
    case 3: return dot_bits<3>(w, x, rows, out);
    case 4: return dot_bits<4>(w, x, rows, out);
    case 5: return dot_bits<5>(w, x, rows, out);
    case 6: return dot_bits<6>(w, x, rows, out);
    case kE2M1: return dot_bits<kE2M1>(w, x, rows, out);
    case kE4M3: return dot_bits<kE4M3>(w, x, rows, out);
    default: return dot_bits<8>(w, x, rows, out);
  }
}

}  // namespace saragossa::cpu::neon
