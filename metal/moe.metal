// Mixtures of experts for few rows: the router, gathered gate and up, gathered down.
//
//   route      p = softmax(logits[t]); the best of p, descending, equal ones by index
//   moe_gated  h[t, k] = act(gate_e x[t]) * up_e x[t] of e = ids[t, k], then of the shared expert
//   moe_down   y[t] = (y[t] +) sum_k weights[t, k] * down_e h[t, k] + sigmoid(gate[t]) * shared_down h[t, shared]
//
// Layout: logits f32 [T, experts]; ids i32, weights f32 [T, chosen]; x, y f32 [T, hidden]; h f32 [T, chosen * inner +
// shared]; weights as in common/quant.h, expert e has the rows from e * stride + offset on, addresses are 64 bits wide.
// An id of no expert gives NaN.
// Ownership: route: a simdgroup a row, expert e belongs to lane e % 32. moe_gated: a threadgroup is 2 simdgroups of 2
// gate and 2 up outputs (or 4 of one weight, where gate and up differ in format) of one place (a row's choice), or, of
// the shared expert, of SG_ROWS rows. moe_down: a threadgroup makes 4 outputs of a row; its simdgroups take the experts
// in turn and leave their sums in threadgroup memory, simdgroup 0 adds them up.
// Precision and order: f32; sums as in common/matvec.h, experts in the order of their choice, then the shared one: a
// row gives the same bits alone and among others, for any number of simdgroups. SG_ADD_SQUARES as in matvec.metal.
// Limits: SG_MOE_MOST_EXPERTS, SG_MOE_MOST_CHOSEN; `in` and alignment as in matvec.metal. No figure of it was measured.

#include <metal_stdlib>

#include "common/matvec.h"
#include "common/moe.h"
#include "common/reduce.h"

using namespace metal;

constant constexpr uint kOutputs = SG_MATVEC_OUTPUTS;
constant constexpr uint kEach = SG_MOE_MOST_EXPERTS / 32;  // logits of a lane

kernel void route(device int* ids [[buffer(SG_ROUTE_IDS)]], device float* weights [[buffer(SG_ROUTE_WEIGHTS)]],
                  device const float* logits [[buffer(SG_ROUTE_LOGITS)]],
                  device const float* scale [[buffer(SG_ROUTE_SCALE)]],
                  constant RouteParams& p [[buffer(SG_ROUTE_PARAMS)]], uint row [[threadgroup_position_in_grid]],
                  uint lane [[thread_index_in_simdgroup]]) {
  logits += ulong(row) * p.experts;
  float z[kEach];
  uint left = 0;  // of this lane's, one bit each: not chosen yet
  bool nan = false;
  float most = -INFINITY;
  for (uint j = 0; j < kEach; ++j) {
    const uint e = j * 32 + lane;
    z[j] = e < p.experts ? logits[e] : -INFINITY;
    left |= e < p.experts ? 1u << j : 0u;
    nan = nan || isnan(z[j]);
    most = fmax(most, z[j]);
  }
  nan = simd_any(nan);
  most = simd_max(most);
  float sum = 0.0f;
  for (uint j = 0; j < kEach; ++j)
    if ((left >> j & 1u) != 0) sum += exp(z[j] - most);
  sum = simd_sum(sum);

  float mine = 0.0f, chosen = 0.0f;
  uint my_id = lane;
  for (uint k = 0; k < p.chosen; ++k) {
    float best = -INFINITY;
    uint id = ~0u;
    for (uint j = 0; j < kEach; ++j) {
      const bool better = (left >> j & 1u) != 0 && (id == ~0u || z[j] > best);
      best = better ? z[j] : best;
      id = better ? j * 32 + lane : id;
    }
    const float value = simd_max(best);
    id = simd_min(best == value ? id : ~0u);
    if (id % 32 == lane) left &= ~(1u << (id / 32 % 32));
    const float weight = exp(value - most) / sum;
    chosen += weight;
    if (lane == k) mine = weight, my_id = id;
  }
  if (lane >= p.chosen) return;
  if (p.renormalize != 0) mine /= chosen;
  if (nan) mine = NAN, my_id = lane;
  if (p.scaled != 0) mine *= scale[my_id];
  ids[row * p.chosen + lane] = int(my_id);
  weights[row * p.chosen + lane] = mine;
}

kernel void moe_gated(SG_MOE_ARGUMENTS, device float* h [[buffer(SG_MOE_Y)]],
                      device const float* x [[buffer(SG_MOE_X)]],
                      device const int* ids [[buffer(SG_MOE_IDS), function_constant(sg_routed)]],
                      uint group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                      uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint taken = sg_pair ? kOutputs / 2 : kOutputs;
  const bool shared = sg_shared && group >= p.first_shared;
  uint tile = group, row = 0, rows = 1, column = 0;  // of h
  int id = 0;
  MoeSides s;
  if (sg_shared && shared) {
    tile -= p.first_shared;
    row = tile / p.shared_tiles * SG_ROWS, rows = SG_ROWS;
    tile %= p.shared_tiles;
    column = p.width - p.shared_out;
    s = MoeSides{SG_MOE_SHARED_SIDE0, SG_MOE_SHARED_SIDE0, 0, 0, p.shared_out, p.in};
    if (sg_pair) s.up = SG_MOE_SHARED_SIDE1;
  } else if (sg_routed) {
    const uint place = tile / p.tiles;
    tile %= p.tiles;
    row = place / p.chosen;
    column = place % p.chosen * p.out;
    id = ids[place];
    const uint e = sg_expert(id, p.experts);
    s = MoeSides{SG_MOE_SIDE0, SG_MOE_SIDE0, e * p.stride0 + p.offset0, e * p.stride1 + p.offset1, p.out, p.in};
    if (sg_pair) s.up = SG_MOE_SIDE1;
  }
  const uint first = (tile * 2 + simdgroup) * taken;
  if (first >= s.out) return;

  LinearRow weight[kOutputs];
  for (uint r = 0; r < kOutputs; ++r) weight[r] = sg_moe_row(s, first, taken, r);
  const XRows at{row, shared ? p.rows - 1 : row, p.in};
  float sum = shared ? sg_dot_products(weight, x, at, p.in, lane) : sg_dot_products<1>(weight, x, at, p.in, lane);
  const float other = sg_pair ? simd_shuffle_down(sum, kOutputs / 2) : 0.0f;
  if (sg_pair) sum = sg_activate(sum, p.activation) * other;

  const uint t = row + lane / kOutputs, r = lane % kOutputs, o = first + r;
  if (lane < rows * kOutputs && t < p.rows && r < taken && o < s.out)
    h[ulong(t) * p.width + column + o] = sg_known(id, p.experts, sum);
}

kernel void moe_down(SG_MOE_ARGUMENTS, device float* y [[buffer(SG_MOE_Y)]], device const float* h [[buffer(SG_MOE_X)]],
                     device const int* ids [[buffer(SG_MOE_IDS), function_constant(sg_routed)]],
                     device const float* weights [[buffer(SG_MOE_WEIGHTS), function_constant(sg_routed)]],
                     device const float* gate [[buffer(SG_MOE_GATE), function_constant(sg_shared_gate)]],
                     device float* squares [[buffer(SG_MOE_SQUARES), function_constant(sg_squared)]],
                     uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                     uint simdgroup [[simdgroup_index_in_threadgroup]],
                     uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float parts[(SG_MOE_MOST_CHOSEN + 1) * kOutputs];
  const uint first = group.x * kOutputs, t = group.y, chosen = sg_routed ? p.chosen : 0;
  h += ulong(t) * p.width;
  for (uint k = simdgroup; k < chosen + (sg_shared ? 1 : 0); k += simdgroups) {
    device const float* x = h;
    MoeSides s;
    int id = 0;
    if (sg_shared && k == chosen) {
      x += p.width - p.shared_in;
      s = MoeSides{SG_MOE_SHARED_SIDE0, SG_MOE_SHARED_SIDE0, 0, 0, p.out, p.shared_in};
    } else if (sg_routed) {
      x += k * p.in;
      id = ids[t * p.chosen + k];
      const uint base = sg_expert(id, p.experts) * p.stride0 + p.offset0;
      s = MoeSides{SG_MOE_SIDE0, SG_MOE_SIDE0, base, 0, p.out, p.in};
    }
    LinearRow weight[kOutputs];
    for (uint r = 0; r < kOutputs; ++r) weight[r] = sg_moe_row(s, first, kOutputs, r);
    const float sum = sg_dot_products<1>(weight, x, XRows{0, 0, 0}, s.in, lane);
    if (lane < kOutputs) parts[k * kOutputs + lane] = sg_known(id, p.experts, sum);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simdgroup != 0) return;

  const uint o = first + lane;
  const bool mine = lane < kOutputs && o < p.out;
  float sum = 0.0f;
  if (mine) {
    if (sg_routed)
      for (uint k = 0; k < p.chosen; ++k) sum = fma(weights[t * p.chosen + k], parts[k * kOutputs + lane], sum);
    if (sg_shared) sum = fma(sg_shared_gate ? sg_sigmoid(gate[t]) : 1.0f, parts[chosen * kOutputs + lane], sum);
    device float* to = y + ulong(t) * p.out + o;
    if (SG_EPILOGUE == SG_ADD || sg_squared) sum = *to + sum;
    *to = sum;
  }
  if (sg_squared) {
    const float four =
        sg_squares(float4(sum, simd_shuffle_down(sum, 1), simd_shuffle_down(sum, 2), simd_shuffle_down(sum, 3)));
    if (lane == 0) squares[t * ((p.out + 3) / 4) + group.x] = four;
  }
}
