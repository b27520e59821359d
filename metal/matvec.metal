// y[t, o] = sum_k x[t, k] W[o, k] (+ bias[o]) for few rows t: decode, and the verification of drafts.
//
// Layout: x f32 [T, in], y f32 [T, out], W as in common/quant.h. Up to three outputs of one x in a dispatch, or a gate
// and an up weight whose rows the same simdgroup takes: y = act(gate) * up. Ownership: a threadgroup is 2 simdgroups, a
// simdgroup makes 4 outputs (gated: 2 of each) of SG_ROWS rows of x; threadgroup (x, y) makes the outputs of tile x for
// the rows from y * SG_ROWS on. Lane l reads the chunks l, l + 32, ... of each weight row, so neighbours read
// neighbouring bytes, four loads in flight, and every byte of a weight is read once for all rows. Precision and order:
// f32. Eight products in order, then acc += scale * dot + bias * sum(x); the lanes' sums by simd_sum. The order does
// not depend on SG_ROWS: a row gives the same bits alone and among others. SG_ADD_SQUARES: a simdgroup also sums the
// squares of its four new values of a row, in the order of common/reduce.h, for the norm that follows. Limits: `in` a
// multiple of 8 and x on 16 bytes, else (dense only) SG_RAGGED element by element. The shape (2 simdgroups of 4
// outputs) rests on public measurements of others (MLX: 82 to 93 % of the bandwidth).

#include <metal_stdlib>

#include "common/linear.h"
#include "common/reduce.h"

using namespace metal;

constant constexpr uint kOutputs = 4;  // of a simdgroup

// Adds this lane's part of row t and output r to acc[t * kOutputs + r].
template <class Format, uint rows>
inline void add_products(const thread LinearRow* weight, const thread uint* x_row, device const float* x, uint in,
                         uint lane, thread float* acc) {
  for (uint k = lane * Format::chunk; k < in; k += 32 * Format::chunk) {
    uint words[kOutputs][Format::words];
    float scale[kOutputs], bias[kOutputs];
    for (uint r = 0; r < kOutputs; ++r) Format::load(weight[r].codes, k, in, words[r]);
    if (Format::scaled)
      for (uint r = 0; r < kOutputs; ++r) {
        scale[r] = sg_stored(weight[r].scales, k >> SG_GROUP_SHIFT, SG_DTYPE);
        if (Format::biased) bias[r] = sg_stored(weight[r].biases, k >> SG_GROUP_SHIFT, SG_DTYPE);
      }
    for (uint first = 0; first < Format::chunk; first += 8) {
      float w[kOutputs][8];
      for (uint r = 0; r < kOutputs; ++r)
        for (uint i = 0; i < 8; ++i) w[r][i] = Format::value(words[r], first + i);
      for (uint t = 0; t < rows; ++t) {
        float v[8];
        sg_load_x(x + x_row[t], k + first, in, v);
        const float sum = ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
        for (uint r = 0; r < kOutputs; ++r) {
          float dot = v[0] * w[r][0];
          for (uint i = 1; i < 8; ++i) dot = fma(v[i], w[r][i], dot);
          thread float& to = acc[t * kOutputs + r];
          if (Format::biased) to = fma(bias[r], sum, to);
          to = Format::scaled ? fma(scale[r], dot, to) : to + dot;
        }
      }
    }
  }
}

// Lane t * kOutputs + r gets the sum of row t and output r.
template <class Format, uint rows>
inline float dot_products(const thread LinearRow* weight, device const float* x, uint row, uint last_row, uint in,
                          uint lane) {
  uint x_row[rows];
  for (uint t = 0; t < rows; ++t) x_row[t] = min(row + t, last_row) * in;
  float acc[rows * kOutputs];
  for (uint i = 0; i < rows * kOutputs; ++i) acc[i] = 0.0f;
  add_products<Format, rows>(weight, x_row, x, in, lane, acc);
  float mine = 0.0f;
  for (uint i = 0; i < rows * kOutputs; ++i) {
    const float sum = simd_sum(acc[i]);
    if (lane == i) mine = sum;
  }
  return mine;
}

template <class Format>
inline float dot_products(const thread LinearRow* weight, device const float* x, uint row, uint last_row, uint in,
                          uint lane) {
  if (SG_ROWS == 1) return dot_products<Format, 1>(weight, x, row, last_row, in, lane);
  if (SG_ROWS == 2) return dot_products<Format, 2>(weight, x, row, last_row, in, lane);
  if (SG_ROWS == 4) return dot_products<Format, 4>(weight, x, row, last_row, in, lane);
  return dot_products<Format, 8>(weight, x, row, last_row, in, lane);
}

kernel void matvec(SG_LINEAR_ARGUMENTS, device const float* x [[buffer(SG_LINEAR_X)]],
                   device float* squares [[buffer(SG_LINEAR_SQUARES), function_constant(sg_squared)]],
                   uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                   uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const bool gated = SG_EPILOGUE == SG_GATED;
  uint tile = group.x;
  SG_LINEAR_SELECT(side, up, tile);
  const uint in = p.in, last_row = p.rows - 1, row = group.y * SG_ROWS;
  const uint taken = gated ? kOutputs / 2 : kOutputs;
  const uint first = (tile * 2 + simdgroup) * taken;
  if (first >= side.out) return;

  LinearRow weight[kOutputs];
  for (uint r = 0; r < kOutputs; ++r)
    weight[r] = r < taken ? sg_linear_row(side, min(first + r, side.out - 1), in)
                          : sg_linear_row(up, min(first + r - taken, side.out - 1), in);
  float sum = 0.0f;
  if (sg_mx) {
    if (SG_BITS == 4) sum = dot_products<Mxfp4>(weight, x, row, last_row, in, lane);
    if (SG_BITS == 8) sum = dot_products<Mxfp8>(weight, x, row, last_row, in, lane);
  } else {
    if (SG_BITS == 2) sum = dot_products<Affine2>(weight, x, row, last_row, in, lane);
    if (SG_BITS == 3) sum = dot_products<Affine3>(weight, x, row, last_row, in, lane);
    if (SG_BITS == 4) sum = dot_products<Affine4>(weight, x, row, last_row, in, lane);
    if (SG_BITS == 5) sum = dot_products<Affine5>(weight, x, row, last_row, in, lane);
    if (SG_BITS == 6) sum = dot_products<Affine6>(weight, x, row, last_row, in, lane);
    if (SG_BITS == 8) sum = dot_products<Affine8>(weight, x, row, last_row, in, lane);
  }
  if (SG_BITS == 0) {
    if (SG_RAGGED)
      sum = dot_products<DenseRagged>(weight, x, row, last_row, in, lane);
    else if (SG_DTYPE == SG_F32)
      sum = dot_products<DenseF32>(weight, x, row, last_row, in, lane);
    else if (SG_DTYPE == SG_F16)
      sum = dot_products<DenseF16>(weight, x, row, last_row, in, lane);
    else
      sum = dot_products<DenseBf16>(weight, x, row, last_row, in, lane);
  }
  const float other = gated ? simd_shuffle_down(sum, kOutputs / 2) : 0.0f;

  const uint t = row + lane / kOutputs, r = lane % kOutputs, o = first + r;
  const bool mine = lane < SG_ROWS * kOutputs && t < p.rows;
  float y = 0.0f;
  if (mine && r < taken && o < side.out) y = sg_linear_write(side, up, t, o, sum, other, p.activation);
  if (sg_squared) {
    const float4 four = float4(y, simd_shuffle_down(y, 1), simd_shuffle_down(y, 2), simd_shuffle_down(y, 3));
    if (mine && r == 0) squares[t * ((side.out + 3) / 4) + first / 4] = sg_squares(four);
  }
}
