// The gated delta net in front of its delta rule.
//
//   causal_conv   y[t, c] = silu(sum over j of x[t - width + 1 + j, c] w[c, j]), what lies in front of a run being its
//                 state; then, where asked for, q and k heads as qk_l2_norm has them
//   qk_l2_norm    x / sqrt(sum of squares + 1e-6) over each q and k head, q times key_dim^-0.5, in place
//
// Layout: x, y f32 [T, channels], w f32 [channels, width], states f32 [slots, width - 1, channels]; a row has q heads,
// k heads, v. Ownership: a simdgroup takes a unit of channels (a head of q or k, as many channels of v) and
// SG_CONV_ROWS rows of a run; lane l has channels l, l + 32, ... with their windows and weights in registers. The
// window of a run is read and written by the lanes of its first rows alone, which fetch what a later row leaves from x;
// so a slot may be read and written in place. Precision and order: f32; j ascending as a chain of fma; squares over a
// lane's channels ascending, then simd_sum: the same for any number of rows, with or without the fusion. Limits:
// SG_CONV_MOST_UNIT channels of a unit, SG_CONV_MOST_WIDTH inputs. No barriers. In decode bound by latency: all loads
// of a lane are independent. No figure of it was measured.

#include <metal_stdlib>

#include "common/activation.h"
#include "common/recurrent.h"
#include "params/causal_conv.h"

using namespace metal;

constant uint SG_WIDTH [[function_constant(0)]];
constant uint SG_UNIT [[function_constant(1)]];
constant uint SG_NORMED [[function_constant(2)]];

constant constexpr uint kPerLane = SG_CONV_MOST_UNIT / 32;

/// Of a head, from the sum of squares of each lane's channels.
inline float l2_scale(float squares, float factor) { return factor * rsqrt(simd_sum(squares) + 1e-6f); }

// Threadgroup (x, y, z): the units 4 x to 4 x + 3, the y-th rows of run z.
kernel void causal_conv(device float* y [[buffer(SG_CONV_Y)]], device const float* x [[buffer(SG_CONV_X)]],
                        device const float* w [[buffer(SG_CONV_W)]], device float* states [[buffer(SG_CONV_STATES)]],
                        device const int* run_starts [[buffer(SG_CONV_RUN_STARTS)]],
                        device const int* sequence [[buffer(SG_CONV_SEQUENCE)]],
                        device const int* state_in [[buffer(SG_CONV_STATE_IN)]],
                        device const int* state_out [[buffer(SG_CONV_STATE_OUT)]],
                        constant ConvParams& p [[buffer(SG_CONV_PARAMS)]], uint3 group [[threadgroup_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                        uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint unit = group.x * simdgroups + simdgroup, kept = SG_WIDTH - 1, n = p.channels;
  const uint begin = uint(run_starts[group.z]), end = uint(run_starts[group.z + 1]);
  const uint first = begin + group.y * SG_CONV_ROWS;
  if (unit >= p.units || first >= end) return;
  const int slot = sg_slot_in(state_in[sequence[begin]], p.slots);
  const uint base = unit * SG_UNIT, taken = min(SG_UNIT, n - base);  // channels

  float window[kPerLane][SG_CONV_MOST_WIDTH], weights[kPerLane][SG_CONV_MOST_WIDTH];
  for (uint i = 0; i < (SG_UNIT + 31) / 32; ++i) {
    const uint c = base + lane + 32 * i;
    if (lane + 32 * i >= taken) continue;
    for (uint j = 0; j < SG_WIDTH; ++j) weights[i][j] = w[ulong(c) * SG_WIDTH + j];
    for (uint j = 0; j < kept; ++j) {
      if (first + j >= begin + kept)
        window[i][j] = x[ulong(first + j - kept) * n + c];
      else if (slot >= 0)
        window[i][j] = states[(ulong(slot) * kept + first + j - begin) * n + c];
      else
        window[i][j] = slot == -1 ? 0.0f : NAN;
    }
  }
  const bool all_kept = end - begin <= SG_KEPT_ROWS;
  for (uint t = first; t < min(first + SG_CONV_ROWS, end); ++t) {
    float out[kPerLane], squares = 0.0f;
    for (uint i = 0; i < (SG_UNIT + 31) / 32; ++i) {
      out[i] = 0.0f;
      if (lane + 32 * i >= taken) continue;
      window[i][kept] = x[ulong(t) * n + base + lane + 32 * i];
      float sum = 0.0f;
      for (uint j = 0; j < SG_WIDTH; ++j) sum = fma(window[i][j], weights[i][j], sum);
      out[i] = sg_silu(sum);
      squares = fma(out[i], out[i], squares);
      for (uint j = 0; j < kept; ++j) window[i][j] = window[i][j + 1];
    }
    float scale = 1.0f;
    if (SG_NORMED != 0 && unit < p.norm_units) scale = l2_scale(squares, unit < p.q_units ? p.q_factor : 1.0f);
    const int to = all_kept ? state_out[t] : -1;
    for (uint i = 0; i < (SG_UNIT + 31) / 32; ++i) {
      const uint c = base + lane + 32 * i;
      if (lane + 32 * i >= taken) continue;
      y[ulong(t) * n + c] = out[i] * scale;
      if (sg_keeps(to, p.slots))
        for (uint j = 0; j < kept; ++j) states[(ulong(to) * kept + j) * n + c] = window[i][j];
    }
  }
  // The window that a long run leaves. Where it reaches in front of the run, entry j is one that stood further on in
  // the same lane's state and that no entry before it has overwritten.
  const int to = all_kept || group.y != 0 ? -1 : state_out[end - 1];
  if (!sg_keeps(to, p.slots)) return;
  for (uint c = base + lane; c < base + taken; c += 32)
    for (uint j = 0; j < kept; ++j) {
      const uint at = end + j;  // of x, behind `kept` rows that stand for the state
      float value = slot == -1 ? 0.0f : NAN;
      if (at >= begin + kept)
        value = x[ulong(at - kept) * n + c];
      else if (slot >= 0)
        value = states[(ulong(slot) * kept + at - begin) * n + c];
      states[(ulong(to) * kept + j) * n + c] = value;
    }
}

// A simdgroup a head of a row.
kernel void qk_l2_norm(device float* x [[buffer(SG_L2_X)]], constant L2Params& p [[buffer(SG_L2_PARAMS)]],
                       uint group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]],
                       uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint at = group * simdgroups + simdgroup, head = at % p.heads, row = at / p.heads;
  if (row >= p.rows) return;
  device float* values = x + ulong(row) * p.channels + head * p.key_dim;
  float squares = 0.0f;
  for (uint i = lane; i < p.key_dim; i += 32) squares = fma(values[i], values[i], squares);
  const float scale = l2_scale(squares, head < p.q_heads ? p.q_factor : 1.0f);
  for (uint i = lane; i < p.key_dim; i += 32) values[i] *= scale;
}
