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

#include <metal_simdgroup_matrix>
#include <metal_stdlib>

#include "common/linear_tile.h"

using namespace metal;

constant constexpr uint kOutputs = 64;  // of a threadgroup
constant constexpr uint kDepth = 32;    // inputs at a time
constant constexpr uint kPitch = 36;    // floats from row to row of a tile: 16-byte aligned, no run of equal banks
constant constexpr uint kSumPitch = 68;

// Four values of row t of x; zero outside.
inline float4 load_x4(device const float* x, uint t, uint k, constant LinearParams& p) {
  if (t >= p.rows || k >= p.in) return float4(0.0f);
  device const float* from = x + t * p.in + k;
  if (!SG_RAGGED) return *(device const float4*)from;
  float4 v(0.0f);
  for (uint i = 0; i < 4; ++i)
    if (k + i < p.in) v[i] = from[i];
  return v;
}

// The sums of a threadgroup into `sums` [SG_ROWS, kSumPitch]. fragments: 8x8 matrices of a simdgroup along the rows.
template <uint fragments>
inline void multiply(threadgroup float* shared, device const float* x, LinearRow row, uint first_row, uint begin,
                     uint end, constant LinearParams& p, uint thread_index, uint simdgroup) {
  constexpr uint rows = fragments * 16;
  threadgroup float* x_tile = shared;                  // [rows, kPitch]
  threadgroup float* w_tile = shared + rows * kPitch;  // [kOutputs, kPitch]
  const uint r = simdgroup / 2 * (rows / 2), c = simdgroup % 2 * (kOutputs / 2);
  const uint w_row = thread_index / 2, w_part = thread_index % 2 * 16;

  simdgroup_float8x8 acc[fragments][4];
  for (uint i = 0; i < fragments; ++i)
    for (uint j = 0; j < 4; ++j) acc[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (uint k0 = begin; k0 < end; k0 += kDepth) {
    for (uint e = thread_index; e < rows * (kDepth / 4); e += 128) {
      const uint t = e / (kDepth / 4), k = e % (kDepth / 4) * 4;
      *(threadgroup float4*)(x_tile + t * kPitch + k) = load_x4(x, first_row + t, k0 + k, p);
    }
    sg_unpack(w_tile + w_row * kPitch + w_part, row, k0 + w_part, p.in);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = 0; k < kDepth; k += 8) {
      simdgroup_float8x8 a[fragments], b[4];
      for (uint i = 0; i < fragments; ++i) simdgroup_load(a[i], x_tile + (r + i * 8) * kPitch + k, kPitch);
      for (uint j = 0; j < 4; ++j) simdgroup_load(b[j], w_tile + (c + j * 8) * kPitch + k, kPitch, ulong2(0), true);
      for (uint i = 0; i < fragments; ++i)
        for (uint j = 0; j < 4; ++j) simdgroup_multiply_accumulate(acc[i][j], a[i], b[j], acc[i][j]);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  for (uint i = 0; i < fragments; ++i)
    for (uint j = 0; j < 4; ++j) simdgroup_store(acc[i][j], shared + (r + i * 8) * kSumPitch + c + j * 8, kSumPitch);
}

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
  if (SG_ROWS == 16) multiply<1>(shared, x, row, first_row, begin, end, p, thread_index, simdgroup);
  if (SG_ROWS == 32) multiply<2>(shared, x, row, first_row, begin, end, p, thread_index, simdgroup);
  if (SG_ROWS == 64) multiply<4>(shared, x, row, first_row, begin, end, p, thread_index, simdgroup);
  threadgroup_barrier(mem_flags::mem_threadgroup);

  for (uint e = thread_index; e < SG_ROWS * taken; e += 128) {
    const uint r = e / taken, c = e % taken, t = first_row + r, o = first + c;
    if (t >= p.rows || o >= side.out) continue;
    sg_linear_write(side, up, t, o, shared[r * kSumPitch + c], gated ? shared[r * kSumPitch + c + taken] : 0.0f,
                    p.activation);
  }
}
