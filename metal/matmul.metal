// y[t, o] = sum_k x[t, k] W[o, k] (+ bias[o]) for many rows t: prefill.
//
// Layout: as matvec.metal. A threadgroup of 4 simdgroups makes SG_ROWS (16, 32, 64) rows by 64 outputs (gated: 32 of
// the gate and the same 32 of the up weight); threadgroup (x, y, z) makes tile x of the outputs for the rows from y *
// SG_ROWS on, of the inputs from z * depth on: where these are split, y is the scratch that matmul_merge adds up, a
// plane [T, out] a split, and there is no epilogue. Ownership: inputs go by 32. Thread i puts 16 dequantised values of
// output i / 2 and SG_ROWS / 16 float4 of x into threadgroup memory; simdgroup s multiplies half of the rows (s / 2) by
// half of the outputs (s % 2) in 8x8 matrices. Precision and order: f32 throughout; each 8x8 product is added to the
// sum in ascending k. The sums pass through threadgroup memory, so edges, bias, addition and activation are plain code
// on elements. Limits: threadgroup memory of (SG_ROWS + 64) * 36 floats, at most 18 KB. `in` and alignment as in
// matvec.metal. No figure of it was measured; tiles of 64 x 64 load 4 + 4 matrices for 16 products, which public
// microbenchmarks of M1 put within the bandwidth of threadgroup memory.

#include <metal_stdlib>

#include "common/matmul.h"

using namespace metal;

constant constexpr uint kOutputs = SG_MATMUL_OUTPUTS;

/// The rows from `first` on of x [rows, in].
struct PlainRows {
  device const float* x;
  uint first, rows, in;

  float4 load(uint t, uint k) const {
    if (first + t >= rows || k >= in) return float4(0.0f);
    device const float* from = x + (first + t) * in + k;
    if (!SG_RAGGED) return *(device const float4*)from;
    float4 v(0.0f);
    for (uint i = 0; i < 4; ++i)
      if (k + i < in) v[i] = from[i];
    return v;
  }
};

kernel void matmul(SG_LINEAR_ARGUMENTS, device const float* x [[buffer(SG_LINEAR_X)]],
                   threadgroup float* shared [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
                   uint thread_index [[thread_index_in_threadgroup]],
                   uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const bool gated = SG_EPILOGUE == SG_GATED;
  uint tile = group.x;
  SG_LINEAR_SELECT(side, up, tile);
  const uint taken = gated ? kOutputs / 2 : kOutputs;
  const uint first = tile * taken, first_row = group.y * SG_ROWS;
  const uint begin = group.z * side.depth, end = min(begin + side.depth, p.in);
  if (begin >= p.in) return;  // another output has more splits
  side.y += ulong(group.z) * p.rows * side.out;

  const LinearRow row = sg_tile_row(side, up, first, taken, thread_index / 2, p.in);
  sg_multiply(shared, PlainRows{x, first_row, p.rows, p.in}, row, begin, end, p.in, thread_index, simdgroup);

  for (uint e = thread_index; e < SG_ROWS * taken; e += 128) {
    const uint r = e / taken, c = e % taken, t = first_row + r, o = first + c;
    if (t >= p.rows || o >= side.out) continue;
    sg_linear_write(side, up, t, o, shared[r * SG_MATMUL_SUM_PITCH + c],
                    gated ? shared[r * SG_MATMUL_SUM_PITCH + c + taken] : 0.0f, p.activation);
  }
}
