// The delta rule of a gated delta net (arXiv 2412.06464), and the norm behind it. For each row t of a run and value
// head:
//
//   S = decay S + delta k^T, delta = beta (v - decay S k), y = S q
//   decay = exp(-exp(a_log) softplus(a + dt_bias)), beta = sigmoid(b)
//   gated_norm: x = x / sqrt(mean(x^2) + eps) * w * silu(z) over a head
//
// Layout: qkv f32 [T, channels] (q heads, k heads, v heads), a, b f32 [T, value_heads], states f32 [slots, value_heads,
// value_dim, key_dim], y, z f32 [T, value_heads * value_dim]. Ownership: a simdgroup has SG_DELTA_ROWS (4) value rows
// of a head, 8 lanes a row; lane l of the eight holds the fours l, l + 8, ... of its row of S in registers, from the
// first row of the run to the last. So a state is read once and written once for each row that keeps it, and a slot may
// be read and written in place.
//
//   delta_rule_step   few rows: a threadgroup a value head, so that the norm of the whole head can follow behind one
//                     barrier; lanes read k and q from the device
//   delta_rule_rows   many rows: threadgroups share the value rows of a head; k, q, decay and beta of SG_STAGE rows
//                     at a time go to threadgroup memory; runs of p.chunked_rows rows are left to delta_chunks.metal
//   gated_norm        a simdgroup a head
//
// Precision and order: f32. S k, S q and k q are added over a lane's fours ascending, then over the eight lanes (xor 1,
// 2, 4). The order is the same in both kernels, with and without the norm, and for any number of rows: a run of n rows
// gives the bits of n runs of one. Limits: key_dim at most SG_DELTA_MOST_KEY_DIM. Eight lanes a row, not 32: three
// shuffles a sum instead of five, and four sums for the price of one (mlx-lm PR 1559 measured twice the speed with four
// lanes a row). No figure of ours was measured.

#include <metal_stdlib>

#include "common/activation.h"
#include "common/delta.h"

using namespace metal;

constant uint SG_VECTOR [[function_constant(1)]];
constant uint SG_STAGE [[function_constant(2)]];
constant uint SG_NORMED [[function_constant(3)]];

constant constexpr uint kFours = SG_DELTA_MOST_KEY_DIM / 32;  // of a lane, at most
constant bool kNormed = SG_NORMED != 0;

/// Fours of a key, and those of them that a lane has.
inline uint fours() { return (SG_KEY_DIM + 3) / 4; }
inline uint lane_fours() { return (fours() + 7) / 8; }

/// Four i of a key, zero behind its end.
inline float4 load4(device const float* x, uint i) {
  if (i >= fours()) return float4(0.0f);
  if (SG_VECTOR == 4) return ((device const float4*)x)[i];
  float4 v(0.0f);
  for (uint j = 0; j < 4; ++j)
    if (4 * i + j < SG_KEY_DIM) v[j] = x[4 * i + j];
  return v;
}

inline void store4(device float* x, uint i, float4 v) {
  if (i >= fours()) return;
  if (SG_VECTOR == 4) {
    ((device float4*)x)[i] = v;
    return;
  }
  for (uint j = 0; j < 4; ++j)
    if (4 * i + j < SG_KEY_DIM) x[4 * i + j] = v[j];
}

inline float dot4(float4 a, float4 b, float sum) {
  return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

/// Over the eight lanes of a row, the same bits in each.
inline float sum_of_eight(float x) {
  x += simd_shuffle_xor(x, 1);
  x += simd_shuffle_xor(x, 2);
  return x + simd_shuffle_xor(x, 4);
}

/// A lane's part of a row of S, and of k and q.
struct Part {
  float4 s[kFours], k[kFours], q[kFours];
};

/// One row of the run; gives y of the value row.
inline float step(thread Part& p, Gate gate, float v) {
  float held = 0.0f, seen = 0.0f, kq = 0.0f;
  for (uint i = 0; i < lane_fours(); ++i) {
    held = dot4(p.s[i], p.k[i], held);
    seen = dot4(p.s[i], p.q[i], seen);
    kq = dot4(p.k[i], p.q[i], kq);
  }
  held = sum_of_eight(held), seen = sum_of_eight(seen), kq = sum_of_eight(kq);
  const float delta = gate.beta * fma(-gate.decay, held, v);
  for (uint i = 0; i < lane_fours(); ++i) p.s[i] = fma(float4(delta), p.k[i], p.s[i] * gate.decay);
  return fma(delta, kq, gate.decay * seen);
}

/// Lanes behind the last value row have none: they must not read what another lane writes.
inline void load_state(thread Part& part, device const float* states, int slot, Head head, uint row, bool mine,
                       constant DeltaParams& p, uint eighth) {
  for (uint i = 0; i < lane_fours(); ++i) {
    if (mine && slot >= 0)
      part.s[i] = load4(states + state_at(slot, head, row, p), eighth + 8 * i);
    else
      part.s[i] = slot >= -1 ? float4(0.0f) : float4(NAN);
  }
}

/// x = rms_norm(x) * w * silu(z) of one head. All lanes must call.
inline void norm_head(device float* x, device const float* z, device const float* w, uint n, float eps, uint lane) {
  float squares = 0.0f;
  for (uint i = lane; i < n; i += 32) squares = fma(x[i], x[i], squares);
  const float scale = rsqrt(simd_sum(squares) / float(n) + eps);
  for (uint i = lane; i < n; i += 32) x[i] = x[i] * scale * w[i] * sg_silu(z[i]);
}

// Threadgroup (h, run).
kernel void delta_rule_step(
    device float* y [[buffer(SG_DELTA_Y)]], device const float* qkv [[buffer(SG_DELTA_QKV)]],
    device const float* a [[buffer(SG_DELTA_A)]], device const float* b [[buffer(SG_DELTA_B)]],
    device const float* a_log [[buffer(SG_DELTA_A_LOG)]], device const float* dt_bias [[buffer(SG_DELTA_DT_BIAS)]],
    device float* states [[buffer(SG_DELTA_STATES)]], device const int* run_starts [[buffer(SG_DELTA_RUN_STARTS)]],
    device const int* sequence [[buffer(SG_DELTA_SEQUENCE)]], device const int* state_in [[buffer(SG_DELTA_STATE_IN)]],
    device const int* state_out [[buffer(SG_DELTA_STATE_OUT)]],
    device const float* z [[buffer(SG_DELTA_Z), function_constant(kNormed)]],
    device const float* w [[buffer(SG_DELTA_NORM), function_constant(kNormed)]],
    constant DeltaParams& p [[buffer(SG_DELTA_PARAMS)]], uint3 group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint simdgroups [[simdgroups_per_threadgroup]]) {
  const Head head = head_of(group.x, p);
  const uint begin = uint(run_starts[group.y]), end = uint(run_starts[group.y + 1]);
  const int slot = sg_slot_in(state_in[sequence[begin]], p.slots);
  const uint eighth = lane % 8, values = p.value_heads * p.value_dim;
  const float head_a_log = a_log[head.index], head_dt_bias = dt_bias[head.index];
  for (uint base = simdgroup * SG_DELTA_ROWS; base < p.value_dim; base += simdgroups * SG_DELTA_ROWS) {
    const bool mine = base + lane / 8 < p.value_dim;
    const uint row = mine ? base + lane / 8 : p.value_dim - 1;
    Part part;
    load_state(part, states, slot, head, row, mine, p, eighth);
    for (uint t = begin; t < end; ++t) {
      device const float* x = qkv + ulong(t) * head.channels;
      for (uint i = 0; i < lane_fours(); ++i) {
        part.k[i] = load4(x + head.k_at(), eighth + 8 * i);
        part.q[i] = load4(x + head.q_at(), eighth + 8 * i);
      }
      const ulong at = ulong(t) * p.value_heads + head.index;
      const float v = x[2 * head.keys + head.index * p.value_dim + row];
      const float out = step(part, gate_of(a[at], b[at], head_a_log, head_dt_bias), v);
      if (mine && eighth == 0) y[ulong(t) * values + head.index * p.value_dim + row] = out;
      const int to = end - begin <= SG_KEPT_ROWS || t + 1 == end ? state_out[t] : -1;
      if (mine && sg_keeps(to, p.slots))
        for (uint i = 0; i < lane_fours(); ++i) store4(states + state_at(to, head, row, p), eighth + 8 * i, part.s[i]);
    }
  }
  if (!kNormed) return;
  threadgroup_barrier(mem_flags::mem_device);
  for (uint t = begin + simdgroup; t < end; t += simdgroups) {
    const ulong at = ulong(t) * values + head.index * p.value_dim;
    norm_head(y + at, z + at, w, p.value_dim, p.eps, lane);
  }
}

// Threadgroup (h, run, z): the z-th value rows of the head, SG_DELTA_ROWS a simdgroup.
kernel void delta_rule_rows(
    device float* y [[buffer(SG_DELTA_Y)]], device const float* qkv [[buffer(SG_DELTA_QKV)]],
    device const float* a [[buffer(SG_DELTA_A)]], device const float* b [[buffer(SG_DELTA_B)]],
    device const float* a_log [[buffer(SG_DELTA_A_LOG)]], device const float* dt_bias [[buffer(SG_DELTA_DT_BIAS)]],
    device float* states [[buffer(SG_DELTA_STATES)]], device const int* run_starts [[buffer(SG_DELTA_RUN_STARTS)]],
    device const int* sequence [[buffer(SG_DELTA_SEQUENCE)]], device const int* state_in [[buffer(SG_DELTA_STATE_IN)]],
    device const int* state_out [[buffer(SG_DELTA_STATE_OUT)]], constant DeltaParams& p [[buffer(SG_DELTA_PARAMS)]],
    threadgroup float4* stage [[threadgroup(SG_DELTA_STAGE)]], uint3 group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]], uint thread_index [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  const Head head = head_of(group.x, p);
  const uint begin = uint(run_starts[group.y]), end = uint(run_starts[group.y + 1]);
  if (end - begin >= p.chunked_rows) return;  // delta_rule_chunks has it
  const int slot = sg_slot_in(state_in[sequence[begin]], p.slots);
  const uint eighth = lane % 8, values = p.value_heads * p.value_dim, count = fours();
  const uint wanted = (group.z * simdgroups + simdgroup) * SG_DELTA_ROWS + lane / 8;
  const bool mine = wanted < p.value_dim;
  const uint row = mine ? wanted : p.value_dim - 1;
  threadgroup float* gates = (threadgroup float*)(stage + 2 * SG_STAGE * count);

  Part part;
  load_state(part, states, slot, head, row, mine, p, eighth);
  for (uint first = begin; first < end; first += SG_STAGE) {
    const uint rows = min(SG_STAGE, end - first);
    threadgroup_barrier(mem_flags::mem_threadgroup);  // the rows before are done with
    for (uint e = thread_index; e < 2 * rows * count; e += 32 * simdgroups) {
      const uint i = e % count, t = e / count / 2;
      const uint from = e / count % 2 == 0 ? head.k_at() : head.q_at();
      stage[e] = load4(qkv + ulong(first + t) * head.channels + from, i);
    }
    for (uint t = thread_index; t < rows; t += 32 * simdgroups) {
      const ulong at = ulong(first + t) * p.value_heads + head.index;
      const Gate gate = gate_of(a[at], b[at], a_log[head.index], dt_bias[head.index]);
      gates[2 * t] = gate.decay;
      gates[2 * t + 1] = gate.beta;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint t = 0; t < rows; ++t) {
      threadgroup const float4* k = stage + 2 * t * count;
      for (uint i = 0; i < lane_fours(); ++i) {
        const uint four = eighth + 8 * i;
        part.k[i] = four < count ? k[four] : float4(0.0f);
        part.q[i] = four < count ? k[count + four] : float4(0.0f);
      }
      const ulong x = ulong(first + t) * head.channels + 2 * head.keys + head.index * p.value_dim + row;
      const float out = step(part, Gate{gates[2 * t], gates[2 * t + 1]}, qkv[x]);
      if (mine && eighth == 0) y[ulong(first + t) * values + head.index * p.value_dim + row] = out;
      const int to = end - begin <= SG_KEPT_ROWS || first + t + 1 == end ? state_out[first + t] : -1;
      if (mine && sg_keeps(to, p.slots))
        for (uint i = 0; i < lane_fours(); ++i) store4(states + state_at(to, head, row, p), eighth + 8 * i, part.s[i]);
    }
  }
}

kernel void gated_norm(device float* x [[buffer(SG_GATED_X)]], device const float* z [[buffer(SG_GATED_Z)]],
                       device const float* w [[buffer(SG_GATED_W)]],
                       constant GatedNormParams& p [[buffer(SG_GATED_PARAMS)]],
                       uint group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]],
                       uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint head = group * simdgroups + simdgroup;
  if (head >= p.heads) return;
  norm_head(x + ulong(head) * p.n, z + ulong(head) * p.n, w, p.n, p.eps, lane);
}
