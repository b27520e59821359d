// Attention of many rows a sequence, on 8x8 simdgroup matrices: y[t, h] = sum_j p_j v_j, p = softmax_j(score(q[t, h] .
// k_j)), over the keys [first, position] of the row. q, y f32 [T, heads, d]; the cache: common/kv.h.
//
// A row here is one query head of one token; the G heads of a kv head and token stand side by side, so a tile of 32
// rows is 32 / G tokens. A threadgroup of 4 simdgroups takes a tile of one kv head, a simdgroup 8 rows of it: queries
// and weighted values stay in registers as C = d / 8 matrices (d is padded with zeros). Heads of more than 256 channels
// would not fit: two simdgroups share 8 rows, each with half of the channels (HALVES = 2), and add up their dot
// products, first half first. Keys go by in tiles of KEYS,
// from a multiple of KEYS: read once a threadgroup, kept as float in threadgroup memory, first k, then v in the same
// place. Scores pass through threadgroup memory for the running maximum; the sums are rescaled by a diagonal matrix
// when a maximum moved. What a lane holds of a matrix is never assumed.
//
// A tile that touches several sequences does them one after another, each from fresh sums. Float throughout; the order
// depends on a row's position alone. Chosen by reading, not measured: no figure is known for a GPU yet.

#include <metal_simdgroup_matrix>
#include <metal_stdlib>

#include "common/attention.h"
#include "common/kv.h"
#include "params/attention.h"

using namespace metal;

constant uint SG_HEAD_DIM [[function_constant(0)]];
constant uint SG_GROUP [[function_constant(1)]];  // query heads of a kv head
constant uint SG_CACHE [[function_constant(2)]];
constant uint SG_BLOCK_TOKENS [[function_constant(3)]];
constant uint SG_GATED [[function_constant(4)]];

/// A thread's place in the threadgroup and its tile.
struct Place {
  uint thread_index, lane, simdgroup;
  uint first_row;  // of the simdgroup, in rows of the kv head
  uint kv_head;
  uint first_channel;  // of the simdgroup
};

/// Tokens [first, end) of a tile, of one sequence.
struct Run {
  uint first, end, sequence;
  uint position;  // of the first token
};

/// Floats of a key of C matrices in threadgroup memory: the 4 spread the banks.
constexpr uint stride_of(uint C) { return 8 * C + 4; }

/// Threadgroup memory.
struct Shared {
  threadgroup float* keys;          // [KEYS, stride]
  threadgroup float* part;          // a quarter of keys, for matrices of this simdgroup on their way: 8 rows
  threadgroup float* scores;        // [8, KEYS] of this simdgroup, then the weights
  threadgroup float* diagonal;      // [8, 8] of this simdgroup
  threadgroup float* other_scores;  // of the simdgroup with the other half of the channels
};

/// What a simdgroup keeps of its 8 rows; lane l holds maximum and sum of row l / 4.
template <uint C>
struct Rows {
  simdgroup_float8x8 queries[C];
  simdgroup_float8x8 values[C];
  float maximum, sum;
};

/// Element 0 of row `r` of this kv head in q and y.
inline ulong row_element(uint r, uint kv_head, constant PrefillParams& p) {
  return (ulong(r / SG_GROUP) * p.heads + kv_head * SG_GROUP + r % SG_GROUP) * SG_HEAD_DIM;
}

/// The simdgroup's queries to registers, `COLUMNS` matrices at a time; zeros where there is no row or channel.
template <uint C, uint COLUMNS>
inline void load_queries(thread Rows<C>& rows, device const float* q, Shared shared, constant PrefillParams& p,
                         Place at) {
  for (uint c0 = 0; c0 < C; c0 += COLUMNS) {
    for (uint i = at.lane; i < 64 * COLUMNS; i += 32) {
      const uint r = at.first_row + i / (8 * COLUMNS), c = at.first_channel + 8 * c0 + i % (8 * COLUMNS);
      const bool there = r < p.rows * SG_GROUP && c < SG_HEAD_DIM;
      shared.part[i] = there ? q[row_element(r, at.kv_head, p) + c] : 0.0f;
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint c = 0; c < COLUMNS; ++c) simdgroup_load(rows.queries[c0 + c], shared.part + 8 * c, 8 * COLUMNS);
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
}

/// y of the rows that belong to `run`: weighted values over their sum, times the gate's sigmoid.
template <uint C, uint COLUMNS>
inline void store_values(thread Rows<C>& rows, device float* y, device const float* gate, Run run, Shared shared,
                         constant PrefillParams& p, Place at) {
  if (at.lane % 4 == 0) shared.diagonal[at.lane / 4 * 9] = rows.sum;
  for (uint c0 = 0; c0 < C; c0 += COLUMNS) {
    for (uint c = 0; c < COLUMNS; ++c) simdgroup_store(rows.values[c0 + c], shared.part + 8 * c, 8 * COLUMNS);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = at.lane; i < 64 * COLUMNS; i += 32) {
      const uint row = i / (8 * COLUMNS), r = at.first_row + row, c = at.first_channel + 8 * c0 + i % (8 * COLUMNS);
      const uint token = r / SG_GROUP;
      if (token < run.first || token >= run.end || c >= SG_HEAD_DIM) continue;
      const ulong to = row_element(r, at.kv_head, p) + c;
      const float value = shared.part[i] / shared.diagonal[row * 9];
      y[to] = SG_GATED != 0 ? sg_times_sigmoid(value, gate[to]) : value;
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
}

/// Keys or values [first, first + KEYS) of the run to threadgroup memory. Those outside of [begin, end) and channels
/// behind the last are 0; `missing` stands where the block table has no row.
template <uint C, uint KEYS, uint W>
inline void stage_keys(KvTensor cache, device const int* block_table, uint first, uint begin, uint end, float missing,
                       Run run, Shared shared, constant PrefillParams& p, Place at) {
  const uint pieces = 8 * C / W;
  for (uint i = at.thread_index; i < KEYS * pieces; i += 128) {
    const uint key = first + i / pieces, c = i % pieces * W;
    float x[W] = {};
    if (key >= begin && key < end && c < SG_HEAD_DIM) {
      const uint row = sg_kv_row(p.kv, block_table, run.sequence, key, at.kv_head, SG_BLOCK_TOKENS);
      if (row == SG_NO_ROW)
        for (uint w = 0; w < W; ++w) x[w] = missing;
      else
        sg_kv_load(x, cache, SG_CACHE, row, c, SG_HEAD_DIM);
    }
    for (uint w = 0; w < W; ++w) shared.keys[(key - first) * stride_of(C) + c + w] = x[w];
  }
}

template <uint C, uint KEYS>
inline void stage(KvTensor cache, device const int* block_table, uint first, uint begin, uint end, float missing,
                  Run run, Shared shared, constant PrefillParams& p, Place at) {
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (SG_HEAD_DIM % 8 == 0)
    stage_keys<C, KEYS, 8>(cache, block_table, first, begin, end, missing, run, shared, p, at);
  else if (SG_HEAD_DIM % 4 == 0)
    stage_keys<C, KEYS, 4>(cache, block_table, first, begin, end, missing, run, shared, p, at);
  else
    stage_keys<C, KEYS, 1>(cache, block_table, first, begin, end, missing, run, shared, p, at);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

/// Dot products of the 8 rows with the staged keys, to shared.scores; of half of the channels where there are two.
template <uint C, uint KEYS, uint HALVES>
inline void dot_products(thread Rows<C>& rows, Shared shared, Place at) {
  constexpr uint stride = stride_of(C * HALVES);
  for (uint j = 0; j < KEYS; j += 8) {
    simdgroup_float8x8 dots = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (uint c = 0; c < C; ++c) {
      simdgroup_float8x8 keys;
      simdgroup_load(keys, shared.keys + j * stride + at.first_channel + 8 * c, stride, ulong2(0, 0), true);
      simdgroup_multiply_accumulate(dots, rows.queries[c], keys, dots);
    }
    simdgroup_store(dots, shared.scores + j, KEYS);
  }
  if (HALVES == 1)
    simdgroup_barrier(mem_flags::mem_threadgroup);
  else
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

/// shared.scores become those of all channels: the sum of both halves.
template <uint KEYS>
inline void add_halves(Shared shared, Place at) {
  threadgroup const float* first = at.first_channel == 0 ? shared.scores : shared.other_scores;
  threadgroup const float* second = at.first_channel == 0 ? shared.other_scores : shared.scores;
  float sums[KEYS / 4];
  for (uint i = 0; i < KEYS / 4; ++i) sums[i] = first[32 * i + at.lane] + second[32 * i + at.lane];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = 0; i < KEYS / 4; ++i) shared.scores[32 * i + at.lane] = sums[i];
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

/// Scores become weights relative to the new maximum. True where a row's maximum moved: then shared.diagonal holds the
/// factors for what was summed up before. Four lanes a row.
template <uint C, uint KEYS>
inline bool softmax(thread Rows<C>& rows, uint first, Run run, Shared shared, constant PrefillParams& p, Place at) {
  const uint row = at.lane / 4, token = (at.first_row + row) / SG_GROUP;
  const bool there = token >= run.first && token < run.end;
  const uint position = run.position + token - run.first, begin = sg_first_key(position, p.window);
  threadgroup float* scores = shared.scores + row * KEYS;
  float maximum = rows.maximum;
  for (uint j = at.lane % 4; j < KEYS; j += 4) {
    const uint key = first + j;
    const bool seen = there && key >= begin && key <= position;
    const float s = seen ? sg_score(scores[j], p.scale, p.softcap) : -INFINITY;
    scores[j] = s;
    maximum = max(maximum, s);
  }
  maximum = max(maximum, simd_shuffle_xor(maximum, 1));
  maximum = max(maximum, simd_shuffle_xor(maximum, 2));
  const float base = maximum == -INFINITY ? 0.0f : maximum;  // nothing seen yet
  const float factor = exp(rows.maximum - base);
  float sum = 0.0f;
  for (uint j = at.lane % 4; j < KEYS; j += 4) {
    const float e = exp(scores[j] - base);
    scores[j] = e;
    sum += e;
  }
  sum += simd_shuffle_xor(sum, 1);
  sum += simd_shuffle_xor(sum, 2);
  rows.maximum = maximum;
  rows.sum = rows.sum * factor + sum;
  if (at.lane % 4 == 0) shared.diagonal[row * 9] = factor;
  simdgroup_barrier(mem_flags::mem_threadgroup);
  return simd_any(factor != 1.0f);
}

/// values = diagonal values + weights staged.
template <uint C, uint KEYS, uint HALVES>
inline void add_values(thread Rows<C>& rows, bool moved, Shared shared, Place at) {
  constexpr uint stride = stride_of(C * HALVES);
  if (moved) {
    simdgroup_float8x8 diagonal;
    simdgroup_load(diagonal, shared.diagonal, 8);
    for (uint c = 0; c < C; ++c) simdgroup_multiply(rows.values[c], diagonal, rows.values[c]);
  }
  simdgroup_float8x8 weights[KEYS / 8];
  for (uint j = 0; j < KEYS / 8; ++j) simdgroup_load(weights[j], shared.scores + 8 * j, KEYS);
  for (uint c = 0; c < C; ++c)
    for (uint j = 0; j < KEYS / 8; ++j) {
      simdgroup_float8x8 values;
      simdgroup_load(values, shared.keys + 8 * j * stride + at.first_channel + 8 * c, stride);
      simdgroup_multiply_accumulate(rows.values[c], weights[j], values, rows.values[c]);
    }
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
};

template <uint C, uint KEYS, uint HALVES>
inline void prefill(Buffers b, threadgroup float* memory, constant PrefillParams& p, uint tile, Place at) {
  constexpr uint tile_rows = SG_PREFILL_ROWS / HALVES, columns = C * HALVES * KEYS / 32;
  at.first_row = tile * tile_rows + at.simdgroup / HALVES * 8;
  at.first_channel = at.simdgroup % HALVES * 8 * C;
  threadgroup float* scores = memory + KEYS * stride_of(C * HALVES);
  threadgroup float* mine = scores + at.simdgroup * (8 * KEYS + 64);
  const Shared shared{memory, memory + at.simdgroup * 64 * columns, mine, mine + 8 * KEYS,
                      scores + (at.simdgroup ^ (HALVES - 1)) * (8 * KEYS + 64)};
  Rows<C> rows;
  load_queries<C, columns>(rows, b.q, shared, p, at);
  for (uint i = at.lane; i < 64; i += 32) shared.diagonal[i] = 0.0f;

  const uint end = min((tile * tile_rows + tile_rows - 1) / SG_GROUP + 1, p.rows);
  Run run{tile * tile_rows / SG_GROUP, 0, 0, 0};
  for (; run.first < end; run.first = run.end) {
    run.sequence = uint(b.sequence[run.first]);
    run.position = uint(b.positions[run.first]);
    run.end = run.first + 1;
    while (run.end < end && uint(b.sequence[run.end]) == run.sequence) ++run.end;
    for (uint c = 0; c < C; ++c) rows.values[c] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    rows.maximum = -INFINITY;
    rows.sum = 0.0f;
    // No further than the table reaches; what is missing in it makes the rows NaN.
    const uint begin = sg_first_key(run.position, p.window);
    const uint last = min(run.position + run.end - run.first, p.kv.max_blocks * SG_BLOCK_TOKENS + KEYS);
    for (uint first = begin / KEYS * KEYS; first < last; first += KEYS) {
      stage<C * HALVES, KEYS>(b.k, b.block_table, first, begin, last, NAN, run, shared, p, at);
      dot_products<C, KEYS, HALVES>(rows, shared, at);
      if (HALVES == 2) add_halves<KEYS>(shared, at);
      const bool moved = softmax<C, KEYS>(rows, first, run, shared, p, at);
      stage<C * HALVES, KEYS>(b.v, b.block_table, first, begin, last, 0.0f, run, shared, p, at);
      add_values<C, KEYS, HALVES>(rows, moved, shared, at);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    store_values<C, columns>(rows, b.y, b.gate, run, shared, p, at);
  }
}

// Grid: (tiles, kv_heads) threadgroups of 128; the last tiles, with the most keys, start first.
kernel void attention_prefill(
    device float* y [[buffer(SG_ATTENTION_Y)]], device const float* q [[buffer(SG_ATTENTION_Q)]],
    device const uchar* k [[buffer(SG_ATTENTION_K)]], device const uchar* v [[buffer(SG_ATTENTION_V)]],
    device const int* positions [[buffer(SG_ATTENTION_POSITIONS)]],
    device const int* sequence [[buffer(SG_ATTENTION_SEQUENCE)]],
    device const int* block_table [[buffer(SG_ATTENTION_BLOCK_TABLE)]],
    device const uint* k_scales [[buffer(SG_ATTENTION_K_SCALES)]],
    device const uint* v_scales [[buffer(SG_ATTENTION_V_SCALES)]],
    device const float* gate [[buffer(SG_ATTENTION_GATE)]], constant PrefillParams& p [[buffer(SG_ATTENTION_PARAMS)]],
    threadgroup float* memory [[threadgroup(SG_ATTENTION_SHARED)]], uint2 group [[threadgroup_position_in_grid]],
    uint2 groups [[threadgroups_per_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint tile = groups.x - 1 - group.x;
  const Place at{thread_index, lane, simdgroup, 0, group.y, 0};
  const Buffers b{y, q, {k, k_scales}, {v, v_scales}, gate, positions, sequence, block_table};
  if (SG_HEAD_DIM <= 64) return prefill<8, 32, 1>(b, memory, p, tile, at);
  if (SG_HEAD_DIM <= 96) return prefill<12, 32, 1>(b, memory, p, tile, at);
  if (SG_HEAD_DIM <= 128) return prefill<16, 32, 1>(b, memory, p, tile, at);
  if (SG_HEAD_DIM <= SG_PREFILL_WHOLE_DIM) return prefill<32, 16, 1>(b, memory, p, tile, at);
  prefill<32, 8, 2>(b, memory, p, tile, at);
}
