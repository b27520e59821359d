// Attention of few rows a sequence: y[t, h] = sum_j p_j v_j, p = softmax_j(score(scale q[t, h] . k_j)), over the keys
// [first, position] of the row. q, y f32 [T, heads, d]; the cache: common/kv.h.
//
// A row's keys are cut into splits of SG_SPLIT, counted from its first key: which keys are added up in which order
// depends on the row's position alone. A threadgroup of 8 simdgroups takes a split (and every gridDim.x-th behind it)
// of one kv head and row, for SG_HEADS query heads, which share every load of k and v. Positions are read here, so the
// grid has splits for the most keys that are possible; those behind the row's last key do nothing.
//
//   rows     where the keys stand, once a split; the queries go to threadgroup memory
//   scores   8 lanes a key, 16 keys a simdgroup and step: a lane loads 16 bytes of four keys at a time, four lanes'
//   worth
//            of sums are added up by four shuffles a head
//   softmax  one simdgroup a head over the split's scores, exact: no running maximum
//   values   a simdgroup reads whole rows of v, 16 bytes a lane, four in flight; each feeds all heads' sums in
//   registers;
//            then sums of lanes, of simdgroups, in order
//
// Gated: y is multiplied with sigmoid(gate), gate f32 as y, where y is written.
// Float throughout. One split: y is written here. Else the split's maximum, sum and weighted values go to scratch, and
// attention_merge adds the splits in order. Chosen by reading, not measured: no figure is known for a GPU yet.

#include <metal_stdlib>

#include "common/attention.h"
#include "common/kv.h"
#include "params/attention.h"

using namespace metal;

constant uint SG_HEAD_DIM [[function_constant(0)]];
constant uint SG_HEADS [[function_constant(1)]];
constant uint SG_CACHE [[function_constant(2)]];
constant uint SG_BLOCK_TOKENS [[function_constant(3)]];
constant uint SG_SPLIT [[function_constant(4)]];
constant uint SG_ONE_SPLIT [[function_constant(5)]];
constant uint SG_GATED [[function_constant(6)]];

/// A thread's place.
struct Place {
  uint thread_index, lane, simdgroup, simdgroups;
  uint threads() const { return 32 * simdgroups; }
};

/// One split, as the threadgroup sees it.
struct Split {
  uint keys;   // of it, 1 to SG_SPLIT
  uint first;  // position of the first one
  uint head;   // the first query head of the pass
  uint heads;  // of the pass; up to H, the rest is padding
};

/// Threadgroup memory of a split.
struct Shared {
  threadgroup uint* rows;      // [SG_SPLIT] of the cache, SG_NO_ROW: not to be found
  threadgroup float* queries;  // [H, d]
  threadgroup float* scores;   // [SG_SPLIT, H], then the weights
  threadgroup float* stats;    // [2, H]: maxima, sums
  threadgroup float* sums;     // [heads of a round, simdgroups, channels of a part]
};

/// A row of the cache; row 0 for one that is missing: softmax makes the result NaN.
inline uint row_of(uint row) { return row == SG_NO_ROW ? 0 : row; }

/// Four lane sums of 8 lanes each: lane l & 3 of the eight gets the total of sum l & 3.
inline float sum_of_eight_lanes(thread const float (&sums)[4], uint lane) {
  const bool odd = (lane & 1) != 0, upper = (lane & 2) != 0;
  const float a = (odd ? sums[1] : sums[0]) + simd_shuffle_xor(odd ? sums[0] : sums[1], 1);
  const float b = (odd ? sums[3] : sums[2]) + simd_shuffle_xor(odd ? sums[2] : sums[3], 1);
  const float c = (upper ? b : a) + simd_shuffle_xor(upper ? a : b, 2);
  return c + simd_shuffle_xor(c, 4);
}

/// scores[j, h] = q_h . k_j for the split's keys.
template <uint W, uint H>
inline void dot_products(KvTensor k, Shared shared, Split split, Place at) {
  const uint eighth = at.lane % 8, quarter = at.lane / 8;
  for (uint base = 16 * at.simdgroup; base < split.keys; base += 16 * at.simdgroups) {
    float sums[H][4] = {};
    uint rows[4];
    for (uint i = 0; i < 4; ++i) rows[i] = row_of(shared.rows[min(base + 4 * i + quarter, split.keys - 1)]);
    for (uint c = eighth * W; c < SG_HEAD_DIM; c += 8 * W) {
      float x[4][W];
      for (uint i = 0; i < 4; ++i) sg_kv_load(x[i], k, SG_CACHE, rows[i], c, SG_HEAD_DIM);
      for (uint h = 0; h < H; ++h)
        for (uint w = 0; w < W; ++w) {
          const float q = shared.queries[h * SG_HEAD_DIM + c + w];
          for (uint i = 0; i < 4; ++i) sums[h][i] += q * x[i][w];
        }
    }
    const uint key = base + 4 * (eighth & 3) + quarter;
    for (uint h = 0; h < H; ++h) {
      const float sum = sum_of_eight_lanes(sums[h], at.lane);
      if (eighth < 4 && key < split.keys) shared.scores[key * H + h] = sum;
    }
  }
}

/// Scores become exp(score - maximum); stats: the maximum and the sum of each head.
template <uint H>
inline void softmax(Shared shared, constant DecodeParams& p, Split split, Place at) {
  for (uint h = at.simdgroup; h < H; h += at.simdgroups) {
    float maximum = -INFINITY, sum = 0.0f;
    for (uint j = at.lane; j < split.keys; j += 32) {
      const float dot = shared.rows[j] == SG_NO_ROW ? NAN : shared.scores[j * H + h];
      const float s = sg_score(dot, p.scale, p.softcap);
      shared.scores[j * H + h] = s;
      maximum = max(maximum, s);
    }
    maximum = simd_max(maximum);
    for (uint j = at.lane; j < split.keys; j += 32) {
      const float e = exp(shared.scores[j * H + h] - maximum);
      shared.scores[j * H + h] = e;
      sum += e;
    }
    sum = simd_sum(sum);
    if (at.lane == 0) shared.stats[h] = maximum, shared.stats[H + h] = sum;
  }
}

/// Adds up one part's sums of all simdgroups and writes them. `out`: channel 0 of head split.head; heads are
/// `stride` apart; `gate` likewise. lanes: those that hold channels.
template <uint W, uint H>
inline void write_sums(thread const float (&sums)[H][W], device float* out, device const float* gate, ulong stride,
                       uint first, uint lanes, Shared shared, constant DecodeParams& p, Split split, Place at) {
  const uint width = lanes * W;
  for (uint h0 = 0; h0 < split.heads; h0 += p.round) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint h = 0; h < H; ++h) {
      if (h < h0 || h >= h0 + p.round || at.lane >= lanes) continue;
      threadgroup float* to = shared.sums + ((h - h0) * at.simdgroups + at.simdgroup) * width + at.lane * W;
      for (uint w = 0; w < W; ++w) to[w] = sums[h][w];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint heads = min(p.round, split.heads - h0);
    for (uint i = at.thread_index; i < heads * width; i += at.threads()) {
      const uint h = i / width, c = i % width;
      float sum = 0.0f;
      for (uint s = 0; s < at.simdgroups; ++s) sum += shared.sums[(h * at.simdgroups + s) * width + c];
      if (SG_ONE_SPLIT != 0) sum /= shared.stats[H + h0 + h];
      if (SG_ONE_SPLIT != 0 && SG_GATED != 0) sum = sg_times_sigmoid(sum, gate[(h0 + h) * stride + first + c]);
      out[(h0 + h) * stride + first + c] = sum;
    }
  }
}

/// The weighted values of the split, up to 32 W channels at a time: `lanes` lanes hold a row of them, so that a
/// simdgroup reads 32 / lanes rows at once.
template <uint W, uint H>
inline void weighted_values(KvTensor v, device float* out, device const float* gate, ulong stride, Shared shared,
                            constant DecodeParams& p, Split split, Place at) {
  for (uint first = 0; first < SG_HEAD_DIM; first += 32 * W) {
    const uint lanes = min((SG_HEAD_DIM - first) / W, 32u), together = 32 / lanes;
    const uint mine = at.lane / lanes, step = together * at.simdgroups;
    const uint c = first + at.lane % lanes * W;
    float sums[H][W] = {};
    for (uint base = together * at.simdgroup; base < split.keys; base += 4 * step) {
      float x[4][W];
      for (uint i = 0; i < 4; ++i) {
        const uint key = min(base + i * step + min(mine, together - 1), split.keys - 1);
        sg_kv_load(x[i], v, SG_CACHE, row_of(shared.rows[key]), c, SG_HEAD_DIM);
      }
      for (uint i = 0; i < 4; ++i) {
        const uint key = base + i * step + mine;
        if (key >= split.keys || mine >= together) continue;
        for (uint h = 0; h < H; ++h) {
          const float weight = shared.scores[key * H + h];
          for (uint w = 0; w < W; ++w) sums[h][w] += weight * x[i][w];
        }
      }
    }
    if (together > 1) {
      for (uint h = 0; h < H; ++h)
        for (uint w = 0; w < W; ++w) {
          const float own = sums[h][w];
          for (uint i = 1; i < together; ++i) sums[h][w] += simd_shuffle(own, ushort((at.lane + i * lanes) % 32));
        }
    }
    write_sums<W, H>(sums, out, gate, stride, first, lanes, shared, p, split, at);
  }
}

/// Rows and queries of a split. `found`: the grid has room for all of the row's splits.
template <uint H>
inline void stage(device const float* q, device const int* block_table, constant DecodeParams& p, uint sequence,
                  uint kv_head, bool found, Shared shared, Split split, Place at) {
  for (uint j = at.thread_index; j < split.keys; j += at.threads())
    shared.rows[j] =
        found ? sg_kv_row(p.kv, block_table, sequence, split.first + j, kv_head, SG_BLOCK_TOKENS) : SG_NO_ROW;
  for (uint i = at.thread_index; i < H * SG_HEAD_DIM; i += at.threads())
    shared.queries[i] = i < split.heads * SG_HEAD_DIM ? q[i] : 0.0f;
}

/// Buffers of the kernel.
struct Buffers {
  device float* y;
  device const float* q;
  KvTensor k, v;
  device const float* gate;
  device const int* positions;
  device const int* sequence;
  device const int* block_table;
  device float* stats;
};

template <uint W, uint H>
inline void decode(Buffers b, threadgroup uint* rows, threadgroup float* memory, constant DecodeParams& p, uint3 group,
                   uint groups, Place at) {
  const uint t = group.z, kv_head = group.y / p.passes, pass = group.y % p.passes;
  const uint group_heads = p.heads / p.kv.kv_heads;
  const uint position = uint(b.positions[t]), begin = sg_first_key(position, p.window);
  const uint count = (position - begin) / SG_SPLIT + 1;  // splits of the row
  const Shared shared{rows, memory, memory + H * SG_HEAD_DIM, memory + H * (SG_HEAD_DIM + SG_SPLIT), memory + p.sums};
  Split split;
  split.head = kv_head * group_heads + pass * SG_HEADS;
  split.heads = min(SG_HEADS, group_heads - pass * SG_HEADS);
  const ulong head = ulong(t) * p.heads + split.head;
  const ulong stride = ulong(SG_ONE_SPLIT != 0 ? 1 : p.splits) * SG_HEAD_DIM;

  for (uint s = group.x; s < min(count, p.splits); s += groups) {
    split.first = begin + s * SG_SPLIT;
    split.keys = min(SG_SPLIT, position + 1 - split.first);
    stage<H>(b.q + head * SG_HEAD_DIM, b.block_table, p, uint(b.sequence[t]), kv_head, count <= p.splits, shared, split,
             at);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    dot_products<W, H>(b.k, shared, split, at);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    softmax<H>(shared, p, split, at);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    device float* out = b.y + head * stride + (SG_ONE_SPLIT != 0 ? 0 : s * SG_HEAD_DIM);
    weighted_values<W, H>(b.v, out, b.gate + head * stride, stride, shared, p, split, at);
    if (SG_ONE_SPLIT == 0 && at.thread_index < 2 * split.heads) {
      const uint h = at.thread_index / 2, i = at.thread_index % 2;
      b.stats[((head + h) * p.splits + s) * 2 + i] = shared.stats[i * H + h];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}

// Grid: (up to splits, kv_heads * passes, T) threadgroups of 32 * SG_DECODE_SIMDGROUPS.
kernel void attention_decode(
    device float* y [[buffer(SG_ATTENTION_Y)]], device const float* q [[buffer(SG_ATTENTION_Q)]],
    device const uchar* k [[buffer(SG_ATTENTION_K)]], device const uchar* v [[buffer(SG_ATTENTION_V)]],
    device const int* positions [[buffer(SG_ATTENTION_POSITIONS)]],
    device const int* sequence [[buffer(SG_ATTENTION_SEQUENCE)]],
    device const int* block_table [[buffer(SG_ATTENTION_BLOCK_TABLE)]],
    device float* stats [[buffer(SG_ATTENTION_STATS)]], device const uint* k_scales [[buffer(SG_ATTENTION_K_SCALES)]],
    device const uint* v_scales [[buffer(SG_ATTENTION_V_SCALES)]],
    device const float* gate [[buffer(SG_ATTENTION_GATE)]], constant DecodeParams& p [[buffer(SG_ATTENTION_PARAMS)]],
    threadgroup float* memory [[threadgroup(SG_ATTENTION_SHARED)]], uint3 group [[threadgroup_position_in_grid]],
    uint3 groups [[threadgroups_per_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup uint rows[SG_MAX_SPLIT];
  const Place at{thread_index, lane, simdgroup, simdgroups};
  const Buffers b{y, q, {k, k_scales}, {v, v_scales}, gate, positions, sequence, block_table, stats};
  if (SG_HEAD_DIM % 8 == 0) {
    if (SG_HEADS == 1) return decode<8, 1>(b, rows, memory, p, group, groups.x, at);
    if (SG_HEADS == 2) return decode<8, 2>(b, rows, memory, p, group, groups.x, at);
    if (SG_HEADS <= 4) return decode<8, 4>(b, rows, memory, p, group, groups.x, at);
    return decode<8, 8>(b, rows, memory, p, group, groups.x, at);
  }
  if (SG_HEAD_DIM % 4 == 0) return decode<4, 8>(b, rows, memory, p, group, groups.x, at);
  decode<1, 8>(b, rows, memory, p, group, groups.x, at);
}

// y[t, h] from the splits' weighted values `sums` f32 [T, heads, splits, d], in order. Grid: (heads, T) threadgroups;
// one thread a channel, and each simdgroup finds the maximum by itself.
kernel void attention_merge(device float* y [[buffer(SG_MERGE_Y)]], device const float* sums [[buffer(SG_MERGE_SUMS)]],
                            device const float* stats [[buffer(SG_MERGE_STATS)]],
                            device const int* positions [[buffer(SG_MERGE_POSITIONS)]],
                            device const float* gate [[buffer(SG_MERGE_GATE)]],
                            constant DecodeParams& p [[buffer(SG_MERGE_PARAMS)]],
                            uint2 group [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]]) {
  const ulong head = ulong(group.y) * p.heads + group.x;
  const uint position = uint(positions[group.y]), keys = position + 1 - sg_first_key(position, p.window);
  const uint count = min((keys + SG_SPLIT - 1) / SG_SPLIT, p.splits);
  device const float* of_split = stats + head * p.splits * 2;
  float maximum = -INFINITY;
  for (uint s = lane; s < count; s += 32) maximum = max(maximum, of_split[2 * s]);
  maximum = simd_max(maximum);
  if (thread_index >= SG_HEAD_DIM) return;
  device const float* values = sums + head * p.splits * SG_HEAD_DIM + thread_index;
  float total = 0.0f, value = 0.0f;
  for (uint s = 0; s < count; ++s) {
    const float factor = exp(of_split[2 * s] - maximum);
    total += factor * of_split[2 * s + 1];
    value += factor * values[s * SG_HEAD_DIM];
  }
  const ulong at = head * SG_HEAD_DIM + thread_index;
  y[at] = SG_GATED != 0 ? sg_times_sigmoid(value / total, gate[at]) : value / total;
}
