// Rotary embedding and the way into the KV cache.
//
//   angle = float(position) * inv_freq[i], c = cos(angle) factor, s = sin(angle) factor
//   x[i], x[i + half] = x[i] c - x[i + half] s, x[i + half] c + x[i] s          i < half; later channels stay
//
// x, q f32 [T, heads, d], k, v f32 [T, kv_heads, d]; the cache: common/kv.h. cos and sin are the precise ones: angles
// reach the position itself. A row whose block the table does not hold is not appended.

#include <metal_stdlib>

#include "common/kv.h"
#include "params/rope.h"

using namespace metal;

constant uint SG_HEAD_DIM [[function_constant(0)]];
constant uint SG_HALF [[function_constant(1)]];
constant uint SG_CACHE [[function_constant(2)]];
constant uint SG_BLOCK_TOKENS [[function_constant(3)]];
constant uint SG_HAS_Q_NORM [[function_constant(4)]];
constant uint SG_HAS_K_NORM [[function_constant(5)]];

/// The rotated pair (a, b) of channels i and i + half.
inline float2 rotated(float a, float b, int position, float inv_freq, float factor) {
  const float angle = float(position) * inv_freq;
  const float c = precise::cos(angle) * factor, s = precise::sin(angle) * factor;
  return float2(a * c - b * s, b * c + a * s);
}

// One thread a pair.
kernel void rope(device float* x [[buffer(SG_ROPE_X)]], device const float* inv_freq [[buffer(SG_ROPE_INV_FREQ)]],
                 device const int* positions [[buffer(SG_ROPE_POSITIONS)]],
                 constant RopeParams& p [[buffer(SG_ROPE_PARAMS)]], uint at [[thread_position_in_grid]]) {
  if (at >= p.rows * p.heads * SG_HALF) return;
  const uint i = at % SG_HALF, head = at / SG_HALF;
  device float* channels = x + ulong(head) * SG_HEAD_DIM;
  const float2 pair = rotated(channels[i], channels[i + SG_HALF], positions[head / p.heads], inv_freq[i], p.factor);
  channels[i] = pair.x;
  channels[i + SG_HALF] = pair.y;
}

// One thread a channel of k and v.
kernel void kv_append(device const float* k [[buffer(SG_APPEND_K)]], device const float* v [[buffer(SG_APPEND_V)]],
                      device uchar* cache_k [[buffer(SG_APPEND_CACHE_K)]],
                      device uchar* cache_v [[buffer(SG_APPEND_CACHE_V)]],
                      device const int* positions [[buffer(SG_APPEND_POSITIONS)]],
                      device const int* sequence [[buffer(SG_APPEND_SEQUENCE)]],
                      device const int* block_table [[buffer(SG_APPEND_BLOCK_TABLE)]],
                      constant AppendParams& p [[buffer(SG_APPEND_PARAMS)]], uint at [[thread_position_in_grid]]) {
  const uint head = at / SG_HEAD_DIM, t = head / p.kv.kv_heads;
  if (t >= p.rows) return;
  const uint row =
      sg_kv_row(p.kv, block_table, uint(sequence[t]), uint(positions[t]), head % p.kv.kv_heads, SG_BLOCK_TOKENS);
  if (row == SG_NO_ROW) return;
  const ulong to = ulong(row) * SG_HEAD_DIM + at % SG_HEAD_DIM;
  sg_kv_store(cache_k, SG_CACHE, to, k[at]);
  sg_kv_store(cache_v, SG_CACHE, to, v[at]);
}

/// What a head of qk_rope_append goes through, beside its channels.
struct Head {
  int position;
  ulong row;  // of the cache; q: unused
  uint lane;
};

/// x, in place: the norm where there is one, then the rotation; `append`: into the cache, too. A lane owns the pairs
/// i = lane, lane + 32, ... and the channels behind them likewise, so nothing is exchanged but the sum of squares.
template <bool append>
inline void norm_rope(device float* x, device const float* w, bool has_norm, device uchar* cache,
                      device const float* inv_freq, constant AppendParams& p, Head at) {
  float scale = 1.0f;
  if (has_norm) {
    float sum = 0.0f;
    for (uint i = at.lane; i < SG_HALF; i += 32) sum += x[i] * x[i] + x[i + SG_HALF] * x[i + SG_HALF];
    for (uint i = 2 * SG_HALF + at.lane; i < SG_HEAD_DIM; i += 32) sum += x[i] * x[i];
    scale = rsqrt(simd_sum(sum) / float(SG_HEAD_DIM) + p.eps);
  }
  for (uint i = at.lane; i < SG_HALF; i += 32) {
    float2 pair = float2(x[i], x[i + SG_HALF]);
    if (has_norm) pair = pair * scale * float2(w[i], w[i + SG_HALF]);
    pair = rotated(pair.x, pair.y, at.position, inv_freq[i], p.factor);
    x[i] = pair.x;
    x[i + SG_HALF] = pair.y;
    if (append && at.row != SG_NO_ROW) {
      sg_kv_store(cache, SG_CACHE, at.row * SG_HEAD_DIM + i, pair.x);
      sg_kv_store(cache, SG_CACHE, at.row * SG_HEAD_DIM + i + SG_HALF, pair.y);
    }
  }
  for (uint i = 2 * SG_HALF + at.lane; i < SG_HEAD_DIM; i += 32) {
    const float y = has_norm ? x[i] * scale * w[i] : x[i];
    x[i] = y;
    if (append && at.row != SG_NO_ROW) sg_kv_store(cache, SG_CACHE, at.row * SG_HEAD_DIM + i, y);
  }
}

// One simdgroup a head row: of a token's q heads first, then its k, then its v heads.
kernel void qk_rope_append(
    device float* q [[buffer(SG_APPEND_Q)]], device float* k [[buffer(SG_APPEND_K)]],
    device const float* v [[buffer(SG_APPEND_V)]], device uchar* cache_k [[buffer(SG_APPEND_CACHE_K)]],
    device uchar* cache_v [[buffer(SG_APPEND_CACHE_V)]], device const int* positions [[buffer(SG_APPEND_POSITIONS)]],
    device const int* sequence [[buffer(SG_APPEND_SEQUENCE)]],
    device const int* block_table [[buffer(SG_APPEND_BLOCK_TABLE)]],
    device const float* inv_freq [[buffer(SG_APPEND_INV_FREQ)]],
    device const float* q_norm [[buffer(SG_APPEND_Q_NORM)]], device const float* k_norm [[buffer(SG_APPEND_K_NORM)]],
    constant AppendParams& p [[buffer(SG_APPEND_PARAMS)]], uint group [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  const uint heads = p.heads + 2 * p.kv.kv_heads;
  const uint index = group * simdgroups + simdgroup, t = index / heads, head = index % heads;
  if (t >= p.rows) return;
  Head at{positions[t], 0, lane};
  if (head < p.heads) {
    device float* x = q + (ulong(t) * p.heads + head) * SG_HEAD_DIM;
    return norm_rope<false>(x, q_norm, SG_HAS_Q_NORM != 0, cache_k, inv_freq, p, at);
  }
  const uint kv_head = (head - p.heads) % p.kv.kv_heads;
  at.row = sg_kv_row(p.kv, block_table, uint(sequence[t]), uint(at.position), kv_head, SG_BLOCK_TOKENS);
  const ulong from = (ulong(t) * p.kv.kv_heads + kv_head) * SG_HEAD_DIM;
  if (head < p.heads + p.kv.kv_heads)
    return norm_rope<true>(k + from, k_norm, SG_HAS_K_NORM != 0, cache_k, inv_freq, p, at);
  if (at.row == SG_NO_ROW) return;
  for (uint i = lane; i < SG_HEAD_DIM; i += 32) sg_kv_store(cache_v, SG_CACHE, at.row * SG_HEAD_DIM + i, v[from + i]);
}
