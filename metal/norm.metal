// RMS norms of rows x f32 [rows, n], w f32 [n]; r(x) = x / sqrt(mean(x^2) + eps).
//
//   rms_norm          y = r(x) w                    y may be x
//   norm_add          y += r(x) w
//   norm_add_norm     y = (y + r(x) w) factor, then z = r(y) w2
//   norm_group        y_i = r(x) w_i of up to three
//   per_layer_inputs  y = (r(x) w + added) / sqrt(2), rows [T, layers] become [layers, T]
//   rms_norm_split    y = r(x) w, with the squares of each four of x already summed (matvec.metal)
//
// Ownership: one threadgroup a row, except rms_norm_split: any number a row, each adds the sums of fours of the whole
// row and writes the part that its threads own. A thread's first four floats stay in registers, so a row of up to 4096
// floats is read once; longer rows are read again, from cache. Loads are of SG_WIDTH floats. Precision and order: float
// sums in the order of common/reduce.h: a row's bits depend neither on the number of threads nor on which of rms_norm
// and rms_norm_split made them. Limits: n at most SG_NORM_MOST; whole simdgroups. Bound by latency in decode: one
// barrier a norm, weights are asked for before it. norm_add_norm takes no ready sums: its row is in registers when it
// needs them, and its second sum holds it in one threadgroup.

#include <metal_stdlib>

#include "common/reduce.h"
#include "params/norm.h"

using namespace metal;

constant uint SG_WIDTH [[function_constant(0)]];
constant uint SG_OUTS [[function_constant(1)]];

constant constexpr uint kUnits = SG_NORM_MOST / 128;

/// A thread's place in its threadgroup.
struct Place {
  uint thread_index, threads, lane, simdgroup, simdgroups;
};

/// Floats 4 i to 4 i + 3 of a row of n, zero behind its end.
inline float4 load4(device const float* x, uint i, uint n) {
  if (SG_WIDTH == 4) return ((device const float4*)x)[i];
  float4 v(0.0f);
  for (uint k = 0; k < 4; ++k)
    if (4 * i + k < n) v[k] = x[4 * i + k];
  return v;
}

inline void store4(device float* y, uint i, uint n, float4 v) {
  if (SG_WIDTH == 4) {
    ((device float4*)y)[i] = v;
    return;
  }
  for (uint k = 0; k < 4; ++k)
    if (4 * i + k < n) y[4 * i + k] = v[k];
}

inline float scale_of(float sum, constant NormParams& p) { return rsqrt(sum / float(p.n) + p.eps); }

/// sqrt(1 / (mean(x^2) + eps)) of a row; x0: the thread's first four of it.
inline float scale_of(device const float* x, float4 x0, constant NormParams& p, threadgroup float* units, Place at) {
  const uint fours = (p.n + 3) / 4, count = (fours + 31) / 32;
  if (at.simdgroup < count) sg_put_unit(units, at.simdgroup, sg_squares(x0), at.lane);
  for (uint unit = at.simdgroup + at.simdgroups; unit < count; unit += at.simdgroups) {
    const uint i = unit * 32 + at.lane;
    sg_put_unit(units, unit, i < fours ? sg_squares(load4(x, i, p.n)) : 0.0f, at.lane);
  }
  return scale_of(sg_sum_units(units, count, at.lane), p);
}

/// y = r(x) w, or y += r(x) w, of one row.
template <bool add>
inline void norm_row(device float* y, device const float* x, device const float* w, constant NormParams& p,
                     threadgroup float* units, Place at) {
  const uint n = p.n, fours = (n + 3) / 4, i = at.thread_index;
  float4 x0(0.0f), w0(0.0f), y0(0.0f);
  if (i < fours) {
    x0 = load4(x, i, n), w0 = load4(w, i, n);
    if (add) y0 = load4(y, i, n);
  }
  const float s = scale_of(x, x0, p, units, at);
  if (i < fours) store4(y, i, n, add ? y0 + x0 * s * w0 : x0 * s * w0);
  for (uint j = i + at.threads; j < fours; j += at.threads) {
    const float4 normed = load4(x, j, n) * s * load4(w, j, n);
    store4(y, j, n, add ? load4(y, j, n) + normed : normed);
  }
}

kernel void rms_norm(device float* y [[buffer(SG_NORM_Y)]], device const float* x [[buffer(SG_NORM_X)]],
                     device const float* w [[buffer(SG_NORM_W)]], constant NormParams& p [[buffer(SG_NORM_PARAMS)]],
                     uint row [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
                     uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                     uint simdgroup [[simdgroup_index_in_threadgroup]],
                     uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float units[kUnits];
  const ulong at = ulong(row) * p.n;
  norm_row<false>(y + at, x + at, w, p, units, Place{thread_index, threads, lane, simdgroup, simdgroups});
}

kernel void norm_add(device float* y [[buffer(SG_NORM_Y)]], device const float* x [[buffer(SG_NORM_X)]],
                     device const float* w [[buffer(SG_NORM_W)]], constant NormParams& p [[buffer(SG_NORM_PARAMS)]],
                     uint row [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
                     uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                     uint simdgroup [[simdgroup_index_in_threadgroup]],
                     uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float units[kUnits];
  const ulong at = ulong(row) * p.n;
  norm_row<true>(y + at, x + at, w, p, units, Place{thread_index, threads, lane, simdgroup, simdgroups});
}

// A thread reads only what it wrote itself.
kernel void norm_add_norm(device float* y [[buffer(SG_NORM_Y)]], device float* z [[buffer(SG_NORM_Z)]],
                          device const float* x [[buffer(SG_NORM_X)]], device const float* w [[buffer(SG_NORM_W)]],
                          device const float* w2 [[buffer(SG_NORM_W2)]],
                          constant NormParams& p [[buffer(SG_NORM_PARAMS)]], uint row [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]], uint threads [[threads_per_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                          uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float units[kUnits], units2[kUnits];
  const Place at{thread_index, threads, lane, simdgroup, simdgroups};
  const uint n = p.n, fours = (n + 3) / 4, i = thread_index;
  y += ulong(row) * n, z += ulong(row) * n, x += ulong(row) * n;
  float4 x0(0.0f), y0(0.0f), w0(0.0f), v0(0.0f);
  if (i < fours) x0 = load4(x, i, n), y0 = load4(y, i, n), w0 = load4(w, i, n), v0 = load4(w2, i, n);
  const float s = scale_of(x, x0, p, units, at);
  y0 = (y0 + x0 * s * w0) * p.factor;
  if (i < fours) store4(y, i, n, y0);
  for (uint j = i + threads; j < fours; j += threads)
    store4(y, j, n, (load4(y, j, n) + load4(x, j, n) * s * load4(w, j, n)) * p.factor);
  const float s2 = scale_of(y, y0, p, units2, at);
  if (i < fours) store4(z, i, n, y0 * s2 * v0);
  for (uint j = i + threads; j < fours; j += threads) store4(z, j, n, load4(y, j, n) * s2 * load4(w2, j, n));
}

/// y = x s w of one row, by a thread's fours; x0: its first.
inline void write_normed(device float* y, device const float* x, device const float* w, float4 x0, float s, uint n,
                         Place at) {
  const uint fours = (n + 3) / 4, i = at.thread_index;
  if (i < fours) store4(y, i, n, x0 * s * load4(w, i, n));
  for (uint j = i + at.threads; j < fours; j += at.threads) store4(y, j, n, load4(x, j, n) * s * load4(w, j, n));
}

kernel void norm_group(device float* y [[buffer(SG_NORM_Y)]], device const float* x [[buffer(SG_NORM_X)]],
                       device const float* w [[buffer(SG_NORM_W)]], device float* y1 [[buffer(SG_NORM_Y1)]],
                       device const float* w1 [[buffer(SG_NORM_W1)]], device float* y2 [[buffer(SG_NORM_Y2)]],
                       device const float* w2 [[buffer(SG_NORM_W_OF_Y2)]],
                       constant NormParams& p [[buffer(SG_NORM_PARAMS)]], uint row [[threadgroup_position_in_grid]],
                       uint thread_index [[thread_index_in_threadgroup]], uint threads [[threads_per_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                       uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float units[kUnits];
  const Place at{thread_index, threads, lane, simdgroup, simdgroups};
  const uint n = p.n;
  const ulong first = ulong(row) * n;
  x += first;
  const float4 x0 = thread_index < (n + 3) / 4 ? load4(x, thread_index, n) : float4(0.0f);
  const float s = scale_of(x, x0, p, units, at);
  write_normed(y + first, x, w, x0, s, n, at);
  if (SG_OUTS > 1) write_normed(y1 + first, x, w1, x0, s, n, at);
  if (SG_OUTS > 2) write_normed(y2 + first, x, w2, x0, s, n, at);
}

// x, added f32 [T, layers * n], y f32 [layers, T, n]. Grid: (T * layers) threadgroups.
kernel void per_layer_inputs(device float* y [[buffer(SG_NORM_Y)]], device const float* x [[buffer(SG_NORM_X)]],
                             device const float* w [[buffer(SG_NORM_W)]],
                             device const float* added [[buffer(SG_NORM_ADDED)]],
                             constant NormParams& p [[buffer(SG_NORM_PARAMS)]],
                             uint row [[threadgroup_position_in_grid]], uint rows [[threadgroups_per_grid]],
                             uint thread_index [[thread_index_in_threadgroup]],
                             uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                             uint simdgroup [[simdgroup_index_in_threadgroup]],
                             uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float units[kUnits];
  const uint n = p.n, fours = (n + 3) / 4, t = row / p.layers, layer = row % p.layers;
  x += ulong(row) * n, added += ulong(row) * n;
  y += (ulong(layer) * (rows / p.layers) + t) * n;
  const float4 x0 = thread_index < fours ? load4(x, thread_index, n) : float4(0.0f);
  const float s = scale_of(x, x0, p, units, Place{thread_index, threads, lane, simdgroup, simdgroups});
  for (uint i = thread_index; i < fours; i += threads) {
    const float4 normed = (i == thread_index ? x0 : load4(x, i, n)) * s * load4(w, i, n);
    store4(y, i, n, (normed + load4(added, i, n)) * 0.70710678118654752f);
  }
}

// Threadgroup (g, row) writes the fours g * threads + thread_index of a row.
kernel void rms_norm_split(device float* y [[buffer(SG_NORM_Y)]], device const float* x [[buffer(SG_NORM_X)]],
                           device const float* w [[buffer(SG_NORM_W)]],
                           device const float* squares [[buffer(SG_NORM_SQUARES)]],
                           constant NormParams& p [[buffer(SG_NORM_PARAMS)]],
                           uint3 group [[threadgroup_position_in_grid]], uint3 threads [[threads_per_threadgroup]],
                           uint thread_index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                           uint simdgroup [[simdgroup_index_in_threadgroup]],
                           uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float units[kUnits];
  const uint n = p.n, fours = (n + 3) / 4, count = (fours + 31) / 32;
  const uint i = group.x * threads.x + thread_index;
  y += ulong(group.y) * n, x += ulong(group.y) * n, squares += ulong(group.y) * fours;
  float4 x0(0.0f), w0(0.0f);
  if (i < fours) x0 = load4(x, i, n), w0 = load4(w, i, n);
  for (uint unit = simdgroup; unit < count; unit += simdgroups) {
    const uint j = unit * 32 + lane;
    sg_put_unit(units, unit, j < fours ? squares[j] : 0.0f, lane);
  }
  const float s = scale_of(sg_sum_units(units, count, lane), p);
  if (i < fours) store4(y, i, n, x0 * s * w0);
}
