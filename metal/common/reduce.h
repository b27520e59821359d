#pragma once
// Sums over a threadgroup. The order is fixed by the number of threads: a row's result depends on nothing else.

/// Sum of `value` over the threadgroup, the same bits in every thread. One partial sum a simdgroup; a second call in
/// the same kernel needs another array. All threads must call.
inline float sg_group_sum(float value, threadgroup float* partial, uint lane, uint simdgroup, uint simdgroups) {
  const float sum = metal::simd_sum(value);
  if (lane == 0) partial[simdgroup] = sum;
  metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  return metal::simd_sum(lane < simdgroups ? partial[lane] : 0.0f);
}
