// y[t, o] = sum_k x[t, k] W[o, k] (+ bias[o]) for few rows t: decode, and the verification of drafts.
//
// Layout: x f32 [T, in], y f32 [T, out], W as in common/quant.h. Up to four outputs of one x in a dispatch, or a gate
// and an up weight whose rows the same simdgroup takes: y = act(gate) * up. Ownership: a threadgroup is 2 simdgroups, a
// simdgroup makes 4 outputs (gated: 2 of each) of SG_ROWS rows of x; threadgroup (x, y) makes the outputs of tile x for
// the rows from y * SG_ROWS on. Precision and order: common/matvec.h; a row gives the same bits alone and among others.
// SG_ADD_SQUARES: a simdgroup also sums the squares of its four new values of a row, in the order of common/reduce.h,
// for the norm that follows. Limits: `in` a multiple of 8 and x on 16 bytes, else (dense only) SG_RAGGED element by
// element. The shape (2 simdgroups of 4 outputs) rests on public measurements of others (MLX: 82 to 93 % of the
// bandwidth).

#include <metal_stdlib>

#include "common/matvec.h"
#include "common/reduce.h"

using namespace metal;

constant constexpr uint kOutputs = SG_MATVEC_OUTPUTS;

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
  const float sum = sg_dot_products(weight, x, XRows{row, last_row, in}, in, lane);
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
