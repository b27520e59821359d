#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

// C[M, N] = A[M, K] B[K, N] in tiles of 32 x 32; four simdgroups of 16 x 16.
struct MatmulParams {
  uint M, N, K;
};

kernel void matmul(device const half* A [[buffer(0)]],
                   device const half* B [[buffer(1)]],
                   device float* C [[buffer(2)]],
                   constant MatmulParams& p [[buffer(3)]],
                   threadgroup half* shared [[threadgroup(0)]],
                   uint3 tile [[threadgroup_position_in_grid]],
                   uint tid [[thread_index_in_threadgroup]],
                   uint sg [[simdgroup_index_in_threadgroup]]) {
  threadgroup half* a_tile = shared;
  threadgroup half* b_tile = shared + 32 * 32;
  const uint row0 = tile.y * 32, column0 = tile.x * 32;
  const uint r = (sg >> 1) * 16, c = (sg & 1) * 16;
  simdgroup_float8x8 acc[2][2];
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++) acc[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (uint k0 = 0; k0 < p.K; k0 += 32) {
    for (uint e = tid; e < 32 * 32; e += 128) {
      const uint i = e / 32, j = e % 32;
      a_tile[e] = row0 + i < p.M && k0 + j < p.K ? A[ulong(row0 + i) * p.K + k0 + j] : half(0);
      b_tile[e] = k0 + i < p.K && column0 + j < p.N ? B[ulong(k0 + i) * p.N + column0 + j] : half(0);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = 0; k < 32; k += 8) {
      simdgroup_half8x8 a[2], b[2];
      for (int i = 0; i < 2; i++) simdgroup_load(a[i], a_tile + (r + i * 8) * 32 + k, 32);
      for (int j = 0; j < 2; j++) simdgroup_load(b[j], b_tile + k * 32 + c + j * 8, 32);
      for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++) simdgroup_multiply_accumulate(acc[i][j], a[i], b[j], acc[i][j]);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++) {
      const uint row = row0 + r + i * 8, column = column0 + c + j * 8;
      if (row + 8 <= p.M && column + 8 <= p.N) simdgroup_store(acc[i][j], C + ulong(row) * p.N + column, p.N);
    }
}
