// Rotary embedding and the way into the KV cache.
//
//   angle = float(position) * inv_freq[i], c = cos(angle) factor, s = sin(angle) factor
//   x[i], x[i + half] = x[i] c - x[i + half] s, x[i + half] c + x[i] s          i < half; later channels stay
//
// x, q f32 [T, heads, d], k, v f32 [T, kv_heads, d]; the cache: common/kv.h. cos and sin are the precise ones: angles
// reach the position itself. A row whose block the table does not hold is not appended. Codes of a u8 cache are made of
// the values as float32: a simdgroup finds the ends of each group of channels.

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
constant uint SG_HAS_V_NORM [[function_constant(6)]];
constant uint SG_GIVEN [[function_constant(7)]];

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

// One thread a channel of k and v. The cache is bf16 or f32.
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

/// One of the cache's tensors, to write to.
struct Cache {
  device uchar* data;
  device uint* scales;
};

/// x f32 [d], times `scale` and w where there is a norm, into `row` of the cache. All lanes of a simdgroup.
inline void store_head(Cache cache, uint row, device const float* x, device const float* w, bool has_norm, float scale,
                       uint lane) {
  if (row == SG_NO_ROW) return;
  const ulong to = ulong(row) * SG_HEAD_DIM;
  if (SG_CACHE != SG_U8) {
    for (uint i = lane; i < SG_HEAD_DIM; i += 32)
      sg_kv_store(cache.data, SG_CACHE, to + i, has_norm ? x[i] * scale * w[i] : x[i]);
    return;
  }
  const uint groups = (SG_HEAD_DIM + SG_KV_GROUP - 1) / SG_KV_GROUP;
  for (uint g = 0; g < groups; ++g) {
    const uint end = min((g + 1) * SG_KV_GROUP, SG_HEAD_DIM);
    float values[SG_KV_GROUP / 32], low = INFINITY, high = -INFINITY;
    bool finite = true;
    for (uint j = 0; j < SG_KV_GROUP / 32; ++j) {
      const uint i = g * SG_KV_GROUP + 32 * j + lane;
      values[j] = 0.0f;
      if (i >= end) continue;
      values[j] = has_norm ? x[i] * scale * w[i] : x[i];
      finite = finite && isfinite(values[j]);
      low = min(low, values[j]);
      high = max(high, values[j]);
    }
    low = simd_min(low), high = simd_max(high);
    const bool all_finite = simd_all(finite);
    const uint code = all_finite ? sg_kv_scale(low, high) : 0x7fc07fc0u;
    for (uint j = 0; j < SG_KV_GROUP / 32; ++j) {
      const uint i = g * SG_KV_GROUP + 32 * j + lane;
      if (i < end) cache.data[to + i] = all_finite ? sg_kv_code(values[j], code) : 0;
    }
    if (lane == 0) cache.scales[ulong(row) * groups + g] = code;
  }
}

// One simdgroup a head of k, then of v, of a token: into a cache of u8.
kernel void kv_append_codes(
    device const float* k [[buffer(SG_APPEND_K)]], device const float* v [[buffer(SG_APPEND_V)]],
    device uchar* cache_k [[buffer(SG_APPEND_CACHE_K)]], device uchar* cache_v [[buffer(SG_APPEND_CACHE_V)]],
    device uint* k_scales [[buffer(SG_APPEND_K_SCALES)]], device uint* v_scales [[buffer(SG_APPEND_V_SCALES)]],
    device const int* positions [[buffer(SG_APPEND_POSITIONS)]],
    device const int* sequence [[buffer(SG_APPEND_SEQUENCE)]],
    device const int* block_table [[buffer(SG_APPEND_BLOCK_TABLE)]],
    constant AppendParams& p [[buffer(SG_APPEND_PARAMS)]], uint group [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]],
    uint lane [[thread_index_in_simdgroup]]) {
  const uint index = group * simdgroups + simdgroup, heads = 2 * p.kv.kv_heads, t = index / heads, head = index % heads;
  if (t >= p.rows) return;
  const uint kv_head = head % p.kv.kv_heads;
  const uint row = sg_kv_row(p.kv, block_table, uint(sequence[t]), uint(positions[t]), kv_head, SG_BLOCK_TOKENS);
  const ulong from = (ulong(t) * p.kv.kv_heads + kv_head) * SG_HEAD_DIM;
  if (head < p.kv.kv_heads)
    store_head(Cache{cache_k, k_scales}, row, k + from, k, false, 1.0f, lane);
  else
    store_head(Cache{cache_v, v_scales}, row, v + from, v, false, 1.0f, lane);
}

/// What a head of qk_rope_append goes through, beside its channels.
struct Head {
  int position;
  uint row;  // of the cache; q: unused
  uint lane;
};

/// 1 / sqrt(mean(x^2) + eps) of a head. The same lane reads a channel here and in norm_rope.
inline float scale_of(device const float* x, constant AppendParams& p, uint lane) {
  float sum = 0.0f;
  for (uint i = lane; i < SG_HALF; i += 32) sum += x[i] * x[i] + x[i + SG_HALF] * x[i + SG_HALF];
  for (uint i = 2 * SG_HALF + lane; i < SG_HEAD_DIM; i += 32) sum += x[i] * x[i];
  return rsqrt(simd_sum(sum) / float(SG_HEAD_DIM) + p.eps);
}

/// x, in place: the norm where there is one, then the rotation; `append`: into the cache, too. A lane owns the pairs
/// i = lane, lane + 32, ... and the channels behind them likewise, so nothing is exchanged but the sum of squares.
template <bool append>
inline void norm_rope(device float* x, device const float* w, bool has_norm, float scale, Cache cache,
                      device const float* inv_freq, constant AppendParams& p, Head at) {
  const bool store = append && SG_CACHE != SG_U8 && at.row != SG_NO_ROW;
  const ulong to = ulong(at.row) * SG_HEAD_DIM;
  for (uint i = at.lane; i < SG_HALF; i += 32) {
    float2 pair = float2(x[i], x[i + SG_HALF]);
    if (has_norm) pair = pair * scale * float2(w[i], w[i + SG_HALF]);
    pair = rotated(pair.x, pair.y, at.position, inv_freq[i], p.factor);
    x[i] = pair.x;
    x[i + SG_HALF] = pair.y;
    if (store) {
      sg_kv_store(cache.data, SG_CACHE, to + i, pair.x);
      sg_kv_store(cache.data, SG_CACHE, to + i + SG_HALF, pair.y);
    }
  }
  for (uint i = 2 * SG_HALF + at.lane; i < SG_HEAD_DIM; i += 32) {
    const float y = has_norm ? x[i] * scale * w[i] : x[i];
    x[i] = y;
    if (store) sg_kv_store(cache.data, SG_CACHE, to + i, y);
  }
  if (append && SG_CACHE == SG_U8) {
    simdgroup_barrier(mem_flags::mem_device);  // a group's channels are those of other lanes
    store_head(cache, at.row, x, w, false, 1.0f, at.lane);
  }
}

// One simdgroup a head row: of a token's q heads first, then its k, then its v heads. Where v is k, the simdgroup of a
// k head stores the value before it turns the key; where q is alone, there are no others.
kernel void qk_rope_append(
    device float* q [[buffer(SG_APPEND_Q)]], device float* k [[buffer(SG_APPEND_K)]],
    device const float* v [[buffer(SG_APPEND_V)]], device uchar* cache_k [[buffer(SG_APPEND_CACHE_K)]],
    device uchar* cache_v [[buffer(SG_APPEND_CACHE_V)]], device uint* k_scales [[buffer(SG_APPEND_K_SCALES)]],
    device uint* v_scales [[buffer(SG_APPEND_V_SCALES)]], device const int* positions [[buffer(SG_APPEND_POSITIONS)]],
    device const int* sequence [[buffer(SG_APPEND_SEQUENCE)]],
    device const int* block_table [[buffer(SG_APPEND_BLOCK_TABLE)]],
    device const float* inv_freq [[buffer(SG_APPEND_INV_FREQ)]],
    device const float* q_norm [[buffer(SG_APPEND_Q_NORM)]], device const float* k_norm [[buffer(SG_APPEND_K_NORM)]],
    device const float* v_norm [[buffer(SG_APPEND_V_NORM)]], constant AppendParams& p [[buffer(SG_APPEND_PARAMS)]],
    uint group [[threadgroup_position_in_grid]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint simdgroups [[simdgroups_per_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  const uint cached = SG_GIVEN == SG_APPEND_ALL ? 2 : SG_GIVEN == SG_APPEND_K_IS_V ? 1 : 0;
  const uint heads = p.heads + cached * p.kv.kv_heads;
  const uint index = group * simdgroups + simdgroup, t = index / heads, head = index % heads;
  if (t >= p.rows) return;
  const Cache keys{cache_k, k_scales}, values{cache_v, v_scales};
  Head at{positions[t], 0, lane};
  if (SG_GIVEN == SG_APPEND_Q_ALONE || head < p.heads) {
    device float* x = q + (ulong(t) * p.heads + head) * SG_HEAD_DIM;
    const float scale = SG_HAS_Q_NORM != 0 ? scale_of(x, p, lane) : 1.0f;
    return norm_rope<false>(x, q_norm, SG_HAS_Q_NORM != 0, scale, keys, inv_freq, p, at);
  }
  const uint kv_head = (head - p.heads) % p.kv.kv_heads;
  at.row = sg_kv_row(p.kv, block_table, uint(sequence[t]), uint(at.position), kv_head, SG_BLOCK_TOKENS);
  const ulong from = (ulong(t) * p.kv.kv_heads + kv_head) * SG_HEAD_DIM;
  if (head >= p.heads + p.kv.kv_heads) {
    const float scale = SG_HAS_V_NORM != 0 ? scale_of(v + from, p, lane) : 1.0f;
    return store_head(values, at.row, v + from, v_norm, SG_HAS_V_NORM != 0, scale, lane);
  }
  const bool normed = SG_HAS_K_NORM != 0 || (SG_GIVEN == SG_APPEND_K_IS_V && SG_HAS_V_NORM != 0);
  const float scale = normed ? scale_of(k + from, p, lane) : 1.0f;
  if (SG_GIVEN == SG_APPEND_K_IS_V) {
    store_head(values, at.row, k + from, v_norm, SG_HAS_V_NORM != 0, scale, lane);
    simdgroup_barrier(mem_flags::mem_device);  // the key is turned in its place
  }
  norm_rope<true>(k + from, k_norm, SG_HAS_K_NORM != 0, scale, keys, inv_freq, p, at);
}
