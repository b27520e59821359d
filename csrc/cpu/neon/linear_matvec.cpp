// Affine matvec with quantised activations: y[r, o] = sum over groups g of
//   (w_scale[o, g] * x_scale[r, g]) * sum(code * q)  +  w_bias[o, g] * x_sum[r, g]
//
// Four groups at a time: their scales and biases are converted in one vector each, and the products w_scale * x_scale
// are lanes of the fma that takes the groups' integer sums. Those come from sdot, one sum per int8 part, joined by
// 128 * high + low; they are exact (|sum| <= 128 * 255 * 16256 < 2^31). Both terms are fma'd into one vector per output
// and row, biases first, in ascending order of groups, so a row's result does not depend on its neighbours.
//
// Vector operations per 64 codes of 4 bits, int15: 4 to unpack, 8 sdot, 3 to scale; four outputs share the loads of x.
//
// Ownership: one thread has outputs [begin, end).

#include <algorithm>

#include "cpu/neon/linear_neon.h"
#include "cpu/neon/linear_unpack.h"

namespace saragossa::cpu::neon {
namespace {

constexpr int64_t kBlockOuts = 4;  // outputs whose codes stay in the first cache while all the rows pass

/// Adds the dot products of a unit's vectors [first, last) with the parts of q to sum.
template <int parts, int first, int last>
inline __attribute__((always_inline)) void add_dots(const Unit& c, const int8_t* q, int32x4_t* sum) {
  SARAGOSSA_UNROLL
  for (int v = first; v < last; ++v) {
    sum[0] = vdotq_s32(sum[0], c.v[v], vld1q_s8(q + 16 * v));
    if constexpr (parts == 2) sum[1] = vdotq_s32(sum[1], c.v[v], vld1q_s8(q + kUnit + 16 * v));
  }
}

template <int parts>
inline __attribute__((always_inline)) int32x4_t joined(const int32x4_t* sum) {
  if constexpr (parts == 1) return sum[0];
  return vmlaq_n_s32(sum[1], sum[0], 128);
}

/// Sums of code * q of a step, one group or two of 32; of the latter, lanes 0 and 1 have the first.
template <int bits, int group, int parts>
inline __attribute__((always_inline)) int32x4_t dot_step(const Unit* c, const int8_t* q) {
  int32x4_t sum[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
  if constexpr (group == 32 && bits != 6) {
    int32x4_t second[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
    add_dots<parts, 0, 2>(c[0], q, sum);
    add_dots<parts, 2, 4>(c[0], q, second);
    return vpaddq_s32(joined<parts>(sum), joined<parts>(second));
  } else {
    add_dots<parts, 0, 4>(c[0], q, sum);
    if constexpr (group == 128) add_dots<parts, 0, 4>(c[1], q + parts * kUnit, sum);
    return joined<parts>(sum);
  }
}

/// sum + dot * factor of step `step` of four groups.
template <int group, int step>
inline float32x4_t add_scaled(float32x4_t sum, float32x4_t dot, float32x4_t factor) {
  if constexpr (group == 32) {
    return vfmaq_f32(sum, dot, step == 0 ? vzip1q_f32(factor, factor) : vzip2q_f32(factor, factor));
  } else {
    return vfmaq_laneq_f32(sum, dot, factor, step);
  }
}

/// Outputs [o, o + outs) for `rows` rows.
template <int bits, int group, int parts, int outs, int rows>
struct Block {
  static constexpr int64_t kStep = group == 128 ? 128 : kUnit;  // values
  static constexpr int64_t kUnits = kStep / kUnit;

  const Matrix& w;
  const MatvecRow* x;
  int64_t o;
  int64_t groups = w.in / group;
  const uint8_t* codes = w.data + o * (w.in * width_of(bits) / 8);

  struct Sums {  // a local of run(): registers
    float32x4_t sum[outs][rows];
    float32x4_t factor[outs][rows];  // w_scale * x_scale of four groups
  };

  /// Scales and biases of groups [g, g + n), n at most 4.
  template <DType dtype>
  inline __attribute__((always_inline)) void start_groups(Sums& s, int64_t g, int64_t n) const {
    SARAGOSSA_UNROLL
    for (int i = 0; i < outs; ++i) {
      const float32x4_t scale = scale_of(load_scales<dtype>(w.scales, (o + i) * groups + g, n), bits);
      const float32x4_t bias = bias_of(load_scales<dtype>(w.biases, (o + i) * groups + g, n), scale, bits);
      SARAGOSSA_UNROLL
      for (int r = 0; r < rows; ++r) {
        s.factor[i][r] = vmulq_f32(scale, vld1q_f32(x[r].scale + g));
        s.sum[i][r] = vfmaq_f32(s.sum[i][r], bias, vld1q_f32(x[r].sum + g));
      }
    }
  }

  /// Step `step` of the four groups from g on; half: the row ends in the middle of its unit.
  template <int step>
  inline __attribute__((always_inline)) void add_step(Sums& s, int64_t g, bool half) const {
    const int64_t unit = g * group / kUnit + step * kUnits;
    SARAGOSSA_UNROLL
    for (int i = 0; i < outs; ++i) {
      Unit c[kUnits];
      SARAGOSSA_UNROLL
      for (int u = 0; u < kUnits; ++u) {
        const uint8_t* p = codes + i * (w.in * width_of(bits) / 8) + (unit + u) * (kUnit * width_of(bits) / 8);
        c[u] = group == 32 ? unpack<bits>(p, half) : unpack<bits>(p);
      }
      SARAGOSSA_UNROLL
      for (int r = 0; r < rows; ++r) {
        const int32x4_t dot = dot_step<bits, group, parts>(c, x[r].units + unit * parts * kUnit);
        s.sum[i][r] = add_scaled<group, step>(s.sum[i][r], vcvtq_f32_s32(dot), s.factor[i][r]);
      }
    }
  }

  void run(const OutTile& out, int64_t r0) const {
    Sums s;
    SARAGOSSA_UNROLL
    for (int i = 0; i < outs; ++i) {
      SARAGOSSA_UNROLL
      for (int r = 0; r < rows; ++r) s.sum[i][r] = vdupq_n_f32(0.0f);
    }
    for (int64_t g = 0; g < groups; g += 4) {
      const int64_t n = std::min<int64_t>(groups - g, 4);
      switch (w.dtype) {
        case DType::bf16: start_groups<DType::bf16>(s, g, n); break;
        case DType::f16: start_groups<DType::f16>(s, g, n); break;
        case DType::u8: start_groups<DType::u8>(s, g, n); break;
        default: start_groups<DType::f32>(s, g, n); break;
      }
      if constexpr (group == 32) {
        add_step<0>(s, g, n == 1);
        if (n > 2) add_step<1>(s, g, n == 3);
      } else {
        add_step<0>(s, g, false);
        if (n > 1) add_step<1>(s, g, false);
        if (n > 2) add_step<2>(s, g, false);
        if (n > 3) add_step<3>(s, g, false);
      }
    }
    SARAGOSSA_UNROLL
    for (int i = 0; i < outs; ++i) {
      SARAGOSSA_UNROLL
      for (int r = 0; r < rows; ++r) out.y[(r0 + r) * out.stride + o + i - out.begin] = sum_of(s.sum[i][r]);
    }
  }
};

/// Outputs [o, o + n), n at most kBlockOuts.
template <int bits, int group, int parts, int rows>
void dot_rows(const Matrix& w, const MatvecRow* x, int64_t o, int64_t n, const OutTile& out, int64_t r0) {
  constexpr int outs = rows == 1 ? 4 : rows == 2 ? 2 : 1;  // what the registers hold
  int64_t i = 0;
  for (; i + outs <= n; i += outs) Block<bits, group, parts, outs, rows>{w, x + r0, o + i}.run(out, r0);
  if constexpr (outs > 1)
    for (; i < n; ++i) Block<bits, group, parts, 1, rows>{w, x + r0, o + i}.run(out, r0);
}

template <int bits, int group, int parts>
void matvec(const Matrix& w, const MatvecRow* x, int64_t rows, const OutTile& out) {
  for (int64_t o = out.begin; o < out.end; o += kBlockOuts) {
    const int64_t n = std::min(kBlockOuts, out.end - o);
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) dot_rows<bits, group, parts, 4>(w, x, o, n, out, r);
    for (; r + 2 <= rows; r += 2) dot_rows<bits, group, parts, 2>(w, x, o, n, out, r);
    if (r < rows) dot_rows<bits, group, parts, 1>(w, x, o, n, out, r);
  }
}

template <int bits, int parts>
void matvec_group(const Matrix& w, const MatvecRow* x, int64_t rows, const OutTile& out) {
  if constexpr (bits == kE2M1) return matvec<bits, 32, parts>(w, x, rows, out);
  switch (w.group) {
    case 32: return matvec<bits, 32, parts>(w, x, rows, out);
    case 64: return matvec<bits, 64, parts>(w, x, rows, out);
    default: return matvec<bits, 128, parts>(w, x, rows, out);
  }
}

template <int parts>
void matvec_bits(const Matrix& w, const MatvecRow* x, int64_t rows, const OutTile& out) {
  switch (code_of(w)) {
    case 2: return matvec_group<2, parts>(w, x, rows, out);
    case 3: return matvec_group<3, parts>(w, x, rows, out);
    case 4: return matvec_group<4, parts>(w, x, rows, out);
    case 5: return matvec_group<5, parts>(w, x, rows, out);
    case kE2M1: return matvec_group<kE2M1, parts>(w, x, rows, out);
    case 6: return matvec_group<6, parts>(w, x, rows, out);
    default: return matvec_group<8, parts>(w, x, rows, out);
  }
}

}  // namespace

void matvec_int(const Matrix& w, const PackFormat& f, const uint8_t* packed, int64_t rows, const OutTile& out) {
  MatvecRow x[kMatvecRows];
  for (int64_t r = 0; r < rows; ++r) x[r] = matvec_row(f, packed, r);
  return parts_of(f) == 2 ? matvec_bits<2>(w, x, rows, out) : matvec_bits<1>(w, x, rows, out);
}

}  // namespace saragossa::cpu::neon
