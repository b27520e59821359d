// RMS norms of rows x f32 [rows, n], w f32 [n]; r(x) = x / sqrt(mean(x^2) + eps).
//
//   rms_norm        y = r(x) w                    y may be x
//   norm_add        y += r(x) w
//   norm_add_norm   y += r(x) w, then z = r(y) w2
//
// One threadgroup a row, SG_WIDTH floats a thread and step. A thread's first piece stays in registers, so a row of up
// to 4096 floats is read once; longer rows are read again, from cache. Float sums: a thread's pieces in order, then
// lanes, then simdgroups. Bound by latency in decode: one barrier a norm, weights are asked for before it.

#include <metal_stdlib>

#include "common/reduce.h"
#include "params/norm.h"

using namespace metal;

constant uint SG_WIDTH [[function_constant(0)]];

/// A thread's place in its threadgroup.
struct Place {
  uint thread_index, threads, lane, simdgroup, simdgroups;
};

inline float square(float x) { return x * x; }
inline float square(float4 x) { return dot(x, x); }

inline float scale_of(float sum, constant NormParams& p) { return rsqrt(sum / float(p.n) + p.eps); }

/// y = r(x) w, or y += r(x) w. T: float or float4; x, y: one row.
template <class T, bool add>
inline void norm_row(device T* y, device const T* x, device const T* w, constant NormParams& p,
                     threadgroup float* partial, Place at) {
  const uint pieces = p.n / (sizeof(T) / sizeof(float));
  const uint i = at.thread_index;
  T x0 = T(0), w0 = T(0), y0 = T(0);
  if (i < pieces) {
    x0 = x[i], w0 = w[i];
    if (add) y0 = y[i];
  }
  float sum = square(x0);
  for (uint j = i + at.threads; j < pieces; j += at.threads) sum += square(x[j]);
  const float s = scale_of(sg_group_sum(sum, partial, at.lane, at.simdgroup, at.simdgroups), p);
  if (i < pieces) y[i] = y0 + x0 * s * w0;
  for (uint j = i + at.threads; j < pieces; j += at.threads) y[j] = (add ? y[j] : T(0)) + x[j] * s * w[j];
}

/// y += r(x) w, z = r(y) w2. A thread reads only what it wrote itself.
template <class T>
inline void norm_add_norm_row(device T* y, device T* z, device const T* x, device const T* w, device const T* w2,
                              constant NormParams& p, threadgroup float* partial, threadgroup float* partial2,
                              Place at) {
  const uint pieces = p.n / (sizeof(T) / sizeof(float));
  const uint i = at.thread_index;
  T x0 = T(0), y0 = T(0), w0 = T(0), v0 = T(0);
  if (i < pieces) x0 = x[i], y0 = y[i], w0 = w[i], v0 = w2[i];
  float sum = square(x0);
  for (uint j = i + at.threads; j < pieces; j += at.threads) sum += square(x[j]);
  const float s = scale_of(sg_group_sum(sum, partial, at.lane, at.simdgroup, at.simdgroups), p);
  y0 += x0 * s * w0;
  sum = square(y0);
  if (i < pieces) y[i] = y0;
  for (uint j = i + at.threads; j < pieces; j += at.threads) {
    const T y1 = y[j] + x[j] * s * w[j];
    y[j] = y1;
    sum += square(y1);
  }
  const float s2 = scale_of(sg_group_sum(sum, partial2, at.lane, at.simdgroup, at.simdgroups), p);
  if (i < pieces) z[i] = y0 * s2 * v0;
  for (uint j = i + at.threads; j < pieces; j += at.threads) z[j] = y[j] * s2 * w2[j];
}

template <bool add>
inline void norm(device float* y, device const float* x, device const float* w, constant NormParams& p,
                 threadgroup float* partial, uint row, Place at) {
  device float* y_row = y + ulong(row) * p.n;
  device const float* x_row = x + ulong(row) * p.n;
  if (SG_WIDTH == 4)
    norm_row<float4, add>((device float4*)y_row, (device const float4*)x_row, (device const float4*)w, p, partial, at);
  else
    norm_row<float, add>(y_row, x_row, w, p, partial, at);
}

kernel void rms_norm(device float* y [[buffer(SG_NORM_Y)]], device const float* x [[buffer(SG_NORM_X)]],
                     device const float* w [[buffer(SG_NORM_W)]], constant NormParams& p [[buffer(SG_NORM_PARAMS)]],
                     uint row [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
                     uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                     uint simdgroup [[simdgroup_index_in_threadgroup]],
                     uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[32];
  norm<false>(y, x, w, p, partial, row, Place{thread_index, threads, lane, simdgroup, simdgroups});
}

kernel void norm_add(device float* y [[buffer(SG_NORM_Y)]], device const float* x [[buffer(SG_NORM_X)]],
                     device const float* w [[buffer(SG_NORM_W)]], constant NormParams& p [[buffer(SG_NORM_PARAMS)]],
                     uint row [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
                     uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                     uint simdgroup [[simdgroup_index_in_threadgroup]],
                     uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[32];
  norm<true>(y, x, w, p, partial, row, Place{thread_index, threads, lane, simdgroup, simdgroups});
}

kernel void norm_add_norm(device float* y [[buffer(SG_NORM_Y)]], device float* z [[buffer(SG_NORM_Z)]],
                          device const float* x [[buffer(SG_NORM_X)]], device const float* w [[buffer(SG_NORM_W)]],
                          device const float* w2 [[buffer(SG_NORM_W2)]],
                          constant NormParams& p [[buffer(SG_NORM_PARAMS)]], uint row [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]], uint threads [[threads_per_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                          uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[32], partial2[32];
  const Place at{thread_index, threads, lane, simdgroup, simdgroups};
  device float* y_row = y + ulong(row) * p.n;
  device float* z_row = z + ulong(row) * p.n;
  device const float* x_row = x + ulong(row) * p.n;
  if (SG_WIDTH == 4)
    norm_add_norm_row<float4>((device float4*)y_row, (device float4*)z_row, (device const float4*)x_row,
                              (device const float4*)w, (device const float4*)w2, p, partial, partial2, at);
  else
    norm_add_norm_row<float>(y_row, z_row, x_row, w, w2, p, partial, partial2, at);
}
