// y[t, o] = sum_k x[t, k] W[o, k] (+ bias[o]) for many rows t by the tensor operations of Metal 4: the matrix units of
// an M5.
//
// half_rows: x f32 [T, in] into half [padded rows, padded inputs] and a power of two per row that brings its largest
// value to [2^14, 2^15): no activation overflows half, whatever its size. Padding is zero. A simdgroup makes one row.
// matmul_tensor: threadgroup (x, y, z) makes tile x of 64 outputs (gated: 32 of the gate and the same 32 of the up
// weight) for SG_ROWS (32, 64) rows from y * SG_ROWS on, of the inputs from z * depth on (matmul.metal), by 4
// simdgroups together. Inputs go by 64: thread i puts 32 dequantised values of output i / 2 into threadgroup memory, x
// is read from device memory by matmul2d itself. Precision and order: x and W are rounded to half (2^-11), products are
// summed in float in the unit's own order. Limits: threadgroup memory of SG_ROWS * 64 floats, at most 16 KB; dense f32
// weights and SG_RAGGED are not taken. Compilers have miscompiled such kernels: csrc/metal/tensor_check.cpp holds them
// to matmul.metal before they are used. No figure of it was measured.

#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
#include <metal_stdlib>
#include <metal_tensor>

#include "common/linear_tile.h"
#include "params/linear_tensor.h"

using namespace metal;
using namespace mpp::tensor_ops;

constant constexpr uint kOutputs = 64;  // of a threadgroup
constant constexpr uint kDepth = 64;    // inputs at a time

kernel void half_rows(device half* y [[buffer(SG_HALF_Y)]], device float* scale [[buffer(SG_HALF_SCALE)]],
                      device const float* x [[buffer(SG_HALF_X)]],
                      constant HalfRowsParams& p [[buffer(SG_HALF_PARAMS)]],
                      uint group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                      uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint row = group * 4 + simdgroup;
  if (row >= p.padded_rows) return;
  device const float* from = x + row * p.in;
  const uint n = row < p.rows ? p.in : 0;
  float most = 0.0f;
  for (uint k = lane; k < n; k += 32) most = fmax(most, fabs(from[k]));
  most = simd_max(most);
  // Biased exponents; what is not finite goes through as it is and shows in its row.
  const uint exponent = clamp(as_type<uint>(most) >> 23, 32u, 254u);
  const bool plain = most == 0.0f || !isfinite(most);
  const float up = plain ? 1.0f : as_type<float>((268u - exponent) << 23);  // 2^(14 - e)
  if (lane == 0) scale[row] = plain ? 1.0f : as_type<float>((exponent - 14u) << 23);
  for (uint k = lane; k < p.padded_in; k += 32) y[row * p.padded_in + k] = k < n ? half(from[k] * up) : half(0);
}

// The sums of a threadgroup into `shared` [rows, kOutputs].
template <int rows>
inline void multiply(threadgroup float* shared, device half* x, LinearRow row, uint first_row, uint begin, uint end,
                     uint in, uint thread_index) {
  const int depth = int((in + kDepth - 1) / kDepth * kDepth);
  threadgroup half* w_tile = (threadgroup half*)shared;  // [kOutputs, kDepth]
  const auto tile_extents = dextents<int32_t, 2>(int(kDepth), int(kOutputs));
  const auto x_extents = dextents<int32_t, 2>(depth, rows);
  auto w = tensor<threadgroup half, dextents<int32_t, 2>, tensor_inline>(w_tile, tile_extents);
  auto all = tensor<device half, dextents<int32_t, 2>, tensor_inline>(x + first_row * uint(depth), x_extents);
  constexpr auto descriptor = matmul2d_descriptor(rows, int(kOutputs), int(kDepth), false, true, false,
                                                  matmul2d_descriptor::mode::multiply_accumulate);
  matmul2d<descriptor, execution_simdgroups<4>> op;
  auto sums = op.template get_destination_cooperative_tensor<decltype(all), decltype(w), float>();
  for (ushort i = 0; i < sums.get_capacity(); ++i)
    if (sums.is_valid_element(i)) sums[i] = 0.0f;

  const uint part = thread_index % 2 * 32;
  threadgroup half* to = w_tile + thread_index / 2 * kDepth + part;
  for (uint k0 = begin; k0 < end; k0 += kDepth) {
    sg_unpack(to, row, k0 + part, in);
    sg_unpack(to + 16, row, k0 + part + 16, in);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    auto x_tile = all.slice(int(k0), 0);
    op.run(x_tile, w, sums);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  auto out =
      tensor<threadgroup float, dextents<int32_t, 2>, tensor_inline>(shared, dextents<int32_t, 2>(int(kOutputs), rows));
  sums.store(out);
}

kernel void matmul_tensor(SG_LINEAR_ARGUMENTS, device half* x [[buffer(SG_LINEAR_X)]],
                          device const float* scale [[buffer(SG_LINEAR_X_SCALE)]],
                          threadgroup float* shared [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]]) {
  const bool gated = SG_EPILOGUE == SG_GATED;
  uint tile = group.x;
  SG_LINEAR_SELECT(side, up, tile);
  const uint taken = gated ? kOutputs / 2 : kOutputs;
  const uint first = tile * taken, first_row = group.y * SG_ROWS;
  const uint begin = group.z * side.depth, end = min(begin + side.depth, p.in);
  if (begin >= p.in) return;  // another output has more splits
  side.y += ulong(group.z) * p.rows * side.out;
  const LinearRow row = sg_tile_row(side, up, first, taken, thread_index / 2, p.in);
  if (SG_ROWS == 32) multiply<32>(shared, x, row, first_row, begin, end, p.in, thread_index);
  if (SG_ROWS == 64) multiply<64>(shared, x, row, first_row, begin, end, p.in, thread_index);
  threadgroup_barrier(mem_flags::mem_threadgroup);

  for (uint e = thread_index; e < SG_ROWS * taken; e += 128) {
    const uint r = e / taken, c = e % taken, t = first_row + r, o = first + c;
    if (t >= p.rows || o >= side.out) continue;
    const float sum = scale[t] * shared[r * kOutputs + c];
    const float other = gated ? scale[t] * shared[r * kOutputs + c + taken] : 0.0f;
    sg_linear_write(side, up, t, o, sum, other, p.activation);
  }
}
