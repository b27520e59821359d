#include <metal_stdlib>
using namespace metal;

// y = x / sqrt(mean(x^2) + eps) * w, one threadgroup a row.
struct NormParams {
  uint width;
  float eps;
};
constant bool has_weight [[function_constant(0)]];

template <typename T>
[[kernel]] void rms_norm(device const T* x [[buffer(0)]],
                         device const T* weight [[buffer(1), function_constant(has_weight)]],
                         device T* y [[buffer(2)]],
                         constant NormParams& p [[buffer(3)]],
                         uint row [[threadgroup_position_in_grid]],
                         uint tid [[thread_position_in_threadgroup]],
                         uint threads [[threads_per_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]],
                         uint sg [[simdgroup_index_in_threadgroup]],
                         uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[32];
  threadgroup float scale[1];
  device const T* in = x + ulong(row) * p.width;
  device T* out = y + ulong(row) * p.width;
  float sum = 0.0f;
  for (uint i = tid; i < p.width; i += threads) {
    float v = float(in[i]);
    sum = fma(v, v, sum);
  }
  sum = simd_sum(sum);
  if (lane == 0) partial[sg] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (sg == 0) {
    float total = simd_sum(lane < simdgroups ? partial[lane] : 0.0f);
    if (lane == 0) scale[0] = precise::rsqrt(total / float(p.width) + p.eps);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = tid; i < p.width; i += threads) {
    float w = has_weight ? float(weight[i]) : 1.0f;
    out[i] = T(float(in[i]) * scale[0] * w);
  }
}
template [[host_name("rms_norm_float")]] [[kernel]] decltype(rms_norm<float>) rms_norm<float>;
template [[host_name("rms_norm_half")]] [[kernel]] decltype(rms_norm<half>) rms_norm<half>;
template [[host_name("rms_norm_bfloat")]] [[kernel]] decltype(rms_norm<bfloat>) rms_norm<bfloat>;
