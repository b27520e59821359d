#pragma once
// The product of the matrix kernels: 16, 32 or 64 rows of x by 64 rows of a weight, in 8x8 simdgroup matrices.
//
// Inputs go by 32. Thread i of 128 puts 16 dequantised values of output i / 2 and SG_ROWS / 16 float4 of x into
// threadgroup memory; simdgroup s multiplies half of the rows (s / 2) by half of the outputs (s % 2). Precision and
// order: f32 throughout; each 8x8 product is added to the sum in ascending k.

#include <metal_simdgroup_matrix>

#include "common/linear_tile.h"

#define SG_MATMUL_OUTPUTS 64  // of a threadgroup
#define SG_MATMUL_DEPTH 32    // inputs at a time
#define SG_MATMUL_PITCH 36    // floats from row to row of a tile: 16-byte aligned, no run of equal banks
#define SG_MATMUL_SUM_PITCH 68

/// The sums of a threadgroup into `shared` [SG_ROWS, SG_MATMUL_SUM_PITCH], a barrier behind. fragments: 8x8 matrices of
/// a simdgroup along the rows; Rows: load(t, k) gives the values k to k + 3 of row t, zero where there are none.
template <uint fragments, class Rows>
inline void sg_multiply(threadgroup float* shared, Rows x, LinearRow row, uint begin, uint end, uint in,
                        uint thread_index, uint simdgroup) {
  constexpr uint rows = fragments * 16;
  threadgroup float* x_tile = shared;                           // [rows, SG_MATMUL_PITCH]
  threadgroup float* w_tile = shared + rows * SG_MATMUL_PITCH;  // [SG_MATMUL_OUTPUTS, SG_MATMUL_PITCH]
  const uint r = simdgroup / 2 * (rows / 2), c = simdgroup % 2 * (SG_MATMUL_OUTPUTS / 2);
  const uint w_row = thread_index / 2, w_part = thread_index % 2 * 16;

  metal::simdgroup_float8x8 acc[fragments][4];
  for (uint i = 0; i < fragments; ++i)
    for (uint j = 0; j < 4; ++j) acc[i][j] = metal::make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (uint k0 = begin; k0 < end; k0 += SG_MATMUL_DEPTH) {
    for (uint e = thread_index; e < rows * (SG_MATMUL_DEPTH / 4); e += 128) {
      const uint t = e / (SG_MATMUL_DEPTH / 4), k = e % (SG_MATMUL_DEPTH / 4) * 4;
      *(threadgroup float4*)(x_tile + t * SG_MATMUL_PITCH + k) = x.load(t, k0 + k);
    }
    sg_unpack(w_tile + w_row * SG_MATMUL_PITCH + w_part, row, k0 + w_part, in);
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    for (uint k = 0; k < SG_MATMUL_DEPTH; k += 8) {
      metal::simdgroup_float8x8 a[fragments], b[4];
      for (uint i = 0; i < fragments; ++i)
        metal::simdgroup_load(a[i], x_tile + (r + i * 8) * SG_MATMUL_PITCH + k, SG_MATMUL_PITCH);
      for (uint j = 0; j < 4; ++j)
        metal::simdgroup_load(b[j], w_tile + (c + j * 8) * SG_MATMUL_PITCH + k, SG_MATMUL_PITCH, ulong2(0), true);
      for (uint i = 0; i < fragments; ++i)
        for (uint j = 0; j < 4; ++j) metal::simdgroup_multiply_accumulate(acc[i][j], a[i], b[j], acc[i][j]);
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  }
  for (uint i = 0; i < fragments; ++i)
    for (uint j = 0; j < 4; ++j)
      metal::simdgroup_store(acc[i][j], shared + (r + i * 8) * SG_MATMUL_SUM_PITCH + c + j * 8, SG_MATMUL_SUM_PITCH);
  metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
}

/// Of SG_ROWS rows.
template <class Rows>
inline void sg_multiply(threadgroup float* shared, Rows x, LinearRow row, uint begin, uint end, uint in,
                        uint thread_index, uint simdgroup) {
  if (SG_ROWS == 16) sg_multiply<1>(shared, x, row, begin, end, in, thread_index, simdgroup);
  if (SG_ROWS == 32) sg_multiply<2>(shared, x, row, begin, end, in, thread_index, simdgroup);
  if (SG_ROWS == 64) sg_multiply<4>(shared, x, row, begin, end, in, thread_index, simdgroup);
}
