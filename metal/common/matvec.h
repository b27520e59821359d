#pragma once
// The sums of the matvec kernels: a simdgroup multiplies four rows of a weight by few rows of x.
//
// Lane l reads the chunks l, l + 32, ... of each weight row, so neighbours read neighbouring bytes, four loads in
// flight, and every byte of a weight is read once for all rows. Precision and order: f32. Eight products in order, then
// acc += scale * dot + bias * sum(x); the lanes' sums by simd_sum. The order does not depend on the number of rows.

#include "common/linear.h"

#define SG_MATVEC_OUTPUTS 4  // rows of the weight

/// Rows of x: `first` and those behind it, `stride` floats apart; behind `last` that one again.
struct XRows {
  uint first, last, stride;
};

// Adds this lane's part of row t and output r to acc[t * SG_MATVEC_OUTPUTS + r].
template <class Format, uint rows>
inline void sg_add_products(const thread LinearRow* weight, const thread uint* x_row, device const float* x, uint in,
                            uint lane, thread float* acc) {
  for (uint k = lane * Format::chunk; k < in; k += 32 * Format::chunk) {
    uint words[SG_MATVEC_OUTPUTS][Format::words];
    float scale[SG_MATVEC_OUTPUTS], bias[SG_MATVEC_OUTPUTS];
    for (uint r = 0; r < SG_MATVEC_OUTPUTS; ++r) Format::load(weight[r].codes, k, in, words[r]);
    if (Format::scaled)
      for (uint r = 0; r < SG_MATVEC_OUTPUTS; ++r) {
        scale[r] = sg_stored(weight[r].scales, k >> SG_GROUP_SHIFT, SG_DTYPE);
        if (Format::biased) bias[r] = sg_stored(weight[r].biases, k >> SG_GROUP_SHIFT, SG_DTYPE);
      }
    for (uint first = 0; first < Format::chunk; first += 8) {
      float w[SG_MATVEC_OUTPUTS][8];
      for (uint r = 0; r < SG_MATVEC_OUTPUTS; ++r)
        for (uint i = 0; i < 8; ++i) w[r][i] = Format::value(words[r], first + i);
      for (uint t = 0; t < rows; ++t) {
        float v[8];
        sg_load_x(x + x_row[t], k + first, in, v);
        const float sum = ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
        for (uint r = 0; r < SG_MATVEC_OUTPUTS; ++r) {
          float dot = v[0] * w[r][0];
          for (uint i = 1; i < 8; ++i) dot = metal::fma(v[i], w[r][i], dot);
          thread float& to = acc[t * SG_MATVEC_OUTPUTS + r];
          if (Format::biased) to = metal::fma(bias[r], sum, to);
          to = Format::scaled ? metal::fma(scale[r], dot, to) : to + dot;
        }
      }
    }
  }
}

// Lane t * SG_MATVEC_OUTPUTS + r gets the sum of row t and output r.
template <class Format, uint rows>
inline float sg_dot_products(const thread LinearRow* weight, device const float* x, XRows at, uint in, uint lane) {
  uint x_row[rows];
  for (uint t = 0; t < rows; ++t) x_row[t] = metal::min(at.first + t, at.last) * at.stride;
  float acc[rows * SG_MATVEC_OUTPUTS];
  for (uint i = 0; i < rows * SG_MATVEC_OUTPUTS; ++i) acc[i] = 0.0f;
  sg_add_products<Format, rows>(weight, x_row, x, in, lane, acc);
  float mine = 0.0f;
  for (uint i = 0; i < rows * SG_MATVEC_OUTPUTS; ++i) {
    const float sum = metal::simd_sum(acc[i]);
    if (lane == i) mine = sum;
  }
  return mine;
}

template <uint rows>
inline float sg_dot_products(const thread LinearRow* weight, device const float* x, XRows at, uint in, uint lane) {
  if (sg_mx && SG_BITS == 4) return sg_dot_products<Mxfp4, rows>(weight, x, at, in, lane);
  if (sg_mx) return sg_dot_products<Mxfp8, rows>(weight, x, at, in, lane);
  if (SG_BITS == 2) return sg_dot_products<Affine2, rows>(weight, x, at, in, lane);
  if (SG_BITS == 3) return sg_dot_products<Affine3, rows>(weight, x, at, in, lane);
  if (SG_BITS == 4) return sg_dot_products<Affine4, rows>(weight, x, at, in, lane);
  if (SG_BITS == 5) return sg_dot_products<Affine5, rows>(weight, x, at, in, lane);
  if (SG_BITS == 6) return sg_dot_products<Affine6, rows>(weight, x, at, in, lane);
  if (SG_BITS == 8) return sg_dot_products<Affine8, rows>(weight, x, at, in, lane);
  if (SG_RAGGED) return sg_dot_products<DenseRagged, rows>(weight, x, at, in, lane);
  if (SG_DTYPE == SG_F32) return sg_dot_products<DenseF32, rows>(weight, x, at, in, lane);
  if (SG_DTYPE == SG_F16) return sg_dot_products<DenseF16, rows>(weight, x, at, in, lane);
  return sg_dot_products<DenseBf16, rows>(weight, x, at, in, lane);
}

/// Of SG_ROWS rows. Lane t * SG_MATVEC_OUTPUTS + r gets the sum of row t and output r.
inline float sg_dot_products(const thread LinearRow* weight, device const float* x, XRows at, uint in, uint lane) {
  if (SG_ROWS == 1) return sg_dot_products<1>(weight, x, at, in, lane);
  if (SG_ROWS == 2) return sg_dot_products<2>(weight, x, at, in, lane);
  if (SG_ROWS == 4) return sg_dot_products<4>(weight, x, at, in, lane);
  return sg_dot_products<8>(weight, x, at, in, lane);
}
