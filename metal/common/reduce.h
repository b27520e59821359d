#pragma once
// The sum of squares of a row, in an order that no number of threads changes: fours of neighbours, then 32 of them (a
// unit) by simd_sum, then the units. So a norm gives the same bits whoever has added the fours, and on any GPU.

/// Of four neighbours of a row. A chain of fma: a compiler has nothing to contract.
inline float sg_squares(float4 v) {
  return metal::fma(v.w, v.w, metal::fma(v.z, v.z, metal::fma(v.y, v.y, v.x * v.x)));
}

/// One unit, four by four of it in each lane, zero behind the end of the row. All lanes of the simdgroup must call.
inline void sg_put_unit(threadgroup float* units, uint unit, float squares, uint lane) {
  const float sum = metal::simd_sum(squares);
  if (lane == 0) units[unit] = sum;
}

/// The sum over a row whose units were put, the same bits in every thread. All threads must call; a second row in the
/// same kernel needs another array.
inline float sg_sum_units(threadgroup float* units, uint count, uint lane) {
  metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  float sum = 0.0f;
  for (uint unit = lane; unit < count; unit += 32) sum += units[unit];
  return metal::simd_sum(sum);
}
