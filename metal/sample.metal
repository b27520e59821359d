// Sampling of R rows of logits f32 [R, V]. Rules: params/sample.h; formulas: common/sample_math.h.
//
//   no filter        sample_scan -> sample_finish
//   top-k, -p, min-p sample_scan -> sample_cut (sample_filter.metal) -> sample_draw -> sample_finish
//
// scan and draw: threadgroup (chunk, row) of 8 simdgroups; a simdgroup takes a block of 128 tokens at once, a lane four
// neighbours, which are one counter of the generator. finish: one threadgroup a row.
// The id is a maximum over exact values: equal bits on every device, in any order. Log probabilities are float sums.
// Row r of the logits draws with row rows[r] of what belongs to a request: params, counts, bias, mask; the host vouches
// for rows. A row's parameters are read from the device, so that steps can be encoded ahead. Logits are read once where
// there is no filter; the vocabulary ends at SG_SAMPLE_MAX_BLOCKS blocks. Not timed on a GPU yet: two dispatches for a
// greedy or unfiltered row is what can be done without atomics across threadgroups.

#include <metal_stdlib>

#include "common/sample_math.h"
#include "params/sample_kernels.h"

using namespace metal;

constant uint SG_HAS_BIAS [[function_constant(0)]];
constant uint SG_HAS_MASK [[function_constant(1)]];
constant uint SG_HAS_COUNTS [[function_constant(2)]];
constant uint SG_FILTERED [[function_constant(3)]];  // sample_draw draws, not sample_scan
constant uint SG_HAS_LOGPROBS [[function_constant(4)]];
constant uint SG_HAS_ROWS [[function_constant(5)]];
constant bool sg_bias = SG_HAS_BIAS != 0;
constant bool sg_mask = SG_HAS_MASK != 0;
constant bool sg_counts = SG_HAS_COUNTS != 0;
constant bool sg_filtered = SG_FILTERED != 0;
constant bool sg_processed = sg_filtered && (sg_bias || sg_mask || sg_counts);
constant bool sg_logprobs = SG_HAS_LOGPROBS != 0;
constant bool sg_rows = SG_HAS_ROWS != 0;

#define SG_SIMDGROUPS (SG_SAMPLE_THREADS / 32)

inline uint request_of(device const int* rows, uint row) { return sg_rows ? uint(rows[row]) : row; }

// Adds the bias entries of the block at `first`, in the order of the list; whole simdgroups call it.
inline float4 add_bias(float4 l, device const int* ids, device const float* bias, uint n, uint first, uint vocab,
                       uint lane) {
  for (uint entry = 0; entry < n; entry += 32) {
    const bool there = entry + lane < n;
    const uint id = there ? uint(ids[entry + lane]) : ~0u;
    const float value = there ? bias[entry + lane] : 0.0f;
    const bool mine = id >= first && id < min(first + SG_SAMPLE_BLOCK, vocab);
    for (uint votes = uint(ulong(simd_ballot(mine))); votes != 0; votes &= votes - 1) {
      const ushort from = ushort(ctz(votes));
      const uint token = simd_shuffle(id, from) - first;
      const float plus = simd_shuffle(value, from);
      if (token / 4 == lane) l = select(l, l + plus, uint4(0, 1, 2, 3) == token % 4);
    }
  }
  return l;
}

// Mask and penalties of four tokens from i on.
inline float4 penalise(float4 l, device const uint* mask, device const uint* counts, float repetition, float presence,
                       float frequency, uint i, uint vocab) {
  for (uint j = 0; j < 4 && i + j < vocab; ++j) {
    float x = l[j];
    if (sg_mask && ((mask[i / 32] >> (i % 32 + j)) & 1u) == 0) x = -INFINITY;
    if (sg_counts && counts[i + j] != 0) {
      const float output = float(counts[i + j] & ~SG_COUNT_PROMPT);
      x = x > 0.0f ? x / repetition : x * repetition;
      x = fma(-frequency, output, x);
      if (output > 0.0f) x -= presence;
    }
    l[j] = x;
  }
  return l;
}

// What a lane has seen so far.
struct Seen {
  SampleBest best;
  float l_max;
  float raw_max;
  float raw_sum;  // of exp(x - raw_max)
  bool nan;
};

inline void see_raw(thread Seen& seen, float4 x) {
  const float top = max(seen.raw_max, sg_max4(x));
  if (top == -INFINITY) return;
  const float4 e = exp(x - top);
  seen.raw_sum = seen.raw_sum * exp(seen.raw_max - top) + ((e.x + e.y) + (e.z + e.w));
  seen.raw_max = top;
}

inline float4 noise(device const SampleParams& p, uint i) {
  const uint4 words = sg_philox(uint4(i / 4, p.step, 0, 0), p.seed_lo, p.seed_hi);
  return float4(sg_gumbel(words.x), sg_gumbel(words.y), sg_gumbel(words.z), sg_gumbel(words.w));
}

// Strictly larger, in ascending order: the lowest id stays.
inline void take_best(thread SampleBest& best, float4 value, uint i) {
  for (uint j = 0; j < 4; ++j)
    if (value[j] > best.value) best = SampleBest{value[j], i + j};
}

// The best of the threadgroup in every thread; the arrays hold one entry a simdgroup.
inline SampleBest best_of_group(SampleBest best, threadgroup float* values, threadgroup uint* ids, uint simdgroup,
                                uint lane) {
  best = sg_best_of_lanes(best);
  if (lane == 0) {
    values[simdgroup] = best.value;
    ids[simdgroup] = best.id;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  SampleBest all = SampleBest{values[0], ids[0]};
  for (uint s = 1; s < SG_SIMDGROUPS; ++s) all = sg_better(all, SampleBest{values[s], ids[s]});
  return all;
}

// Bias, mask and penalties of a chunk, its maxima, and its best token unless sample_draw looks for it.
kernel void sample_scan(device const float* logits [[buffer(SG_SAMPLE_LOGITS)]],
                        device const SampleParams* params [[buffer(SG_SAMPLE_PARAMS)]],
                        device const uint* counts [[buffer(SG_SAMPLE_COUNTS), function_constant(sg_counts)]],
                        device const int* bias_ids [[buffer(SG_SAMPLE_BIAS_IDS), function_constant(sg_bias)]],
                        device const float* bias [[buffer(SG_SAMPLE_BIAS), function_constant(sg_bias)]],
                        device const uint* mask [[buffer(SG_SAMPLE_MASK), function_constant(sg_mask)]],
                        device SamplePartial* partials [[buffer(SG_SAMPLE_PARTIALS)]],
                        device float* processed [[buffer(SG_SAMPLE_PROCESSED), function_constant(sg_processed)]],
                        device float* block_max [[buffer(SG_SAMPLE_BLOCK_MAX), function_constant(sg_filtered)]],
                        device float* raw_block_max [[buffer(SG_SAMPLE_RAW_BLOCK_MAX), function_constant(sg_logprobs)]],
                        device const int* rows [[buffer(SG_SAMPLE_ROWS), function_constant(sg_rows)]],
                        constant SampleShape& s [[buffer(SG_SAMPLE_SHAPE)]],
                        uint2 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float values[SG_SIMDGROUPS], l_maxima[SG_SIMDGROUPS], raw_maxima[SG_SIMDGROUPS], raw_sums[SG_SIMDGROUPS];
  threadgroup uint ids[SG_SIMDGROUPS], nans[SG_SIMDGROUPS];
  const uint row = group.y, vocab = s.vocab, request = request_of(rows, row);
  const ulong tokens = ulong(row) * vocab;
  device const SampleParams& p = params[request];
  const float temperature = p.temperature;
  const bool draws = !sg_filtered && temperature > 0.0f;
  const bool argmax = !(temperature > 0.0f);
  const float inv_t = draws ? 1.0f / temperature : 1.0f;
  const uint n_bias = sg_bias ? min(uint(max(p.n_bias, 0)), s.bias_size) : 0;

  Seen seen = Seen{SampleBest{-INFINITY, ~0u}, -INFINITY, -INFINITY, 0.0f, false};
  for (uint at = simdgroup * SG_SAMPLE_BLOCK; at < SG_SAMPLE_CHUNK; at += SG_SIMDGROUPS * SG_SAMPLE_BLOCK) {
    const uint first = group.x * SG_SAMPLE_CHUNK + at, i = first + lane * 4;
    if (first >= vocab) break;
    const float4 x = sg_load_tokens(logits + tokens, i, vocab);
    float4 l = x;
    if (sg_bias)
      l = add_bias(l, bias_ids + request * s.bias_size, bias + request * s.bias_size, n_bias, first, vocab, lane);
    seen.nan = seen.nan || any(isnan(l));
    if (sg_mask || sg_counts)
      l = penalise(l, mask + ulong(request) * ((vocab + 31) / 32), counts + ulong(request) * vocab,
                   p.repetition_penalty, p.presence_penalty, p.frequency_penalty, i, vocab);
    const float l_max = sg_max4(l);
    seen.l_max = max(seen.l_max, l_max);
    if (argmax) take_best(seen.best, l, i);
    if (draws) take_best(seen.best, sg_scaled(l, inv_t) + noise(p, i), i);
    if (sg_filtered) {
      const float top = simd_max(l_max);
      if (lane == 0) block_max[row * s.blocks + first / SG_SAMPLE_BLOCK] = top;
      if (sg_processed)
        for (uint j = 0; j < 4 && i + j < vocab; ++j) processed[tokens + i + j] = l[j];
    }
    if (sg_logprobs) {
      const float top = simd_max(sg_max4(x));
      if (lane == 0) raw_block_max[row * s.blocks + first / SG_SAMPLE_BLOCK] = top;
      see_raw(seen, x);
    }
  }

  const float l_max = simd_max(seen.l_max), raw_max = simd_max(seen.raw_max);
  const float raw_sum = simd_sum(seen.raw_max == -INFINITY ? 0.0f : seen.raw_sum * exp(seen.raw_max - raw_max));
  const bool nan = simd_any(seen.nan);
  if (lane == 0) {
    l_maxima[simdgroup] = l_max;
    raw_maxima[simdgroup] = raw_max;
    raw_sums[simdgroup] = raw_sum;
    nans[simdgroup] = nan ? 1 : 0;
  }
  const SampleBest best = best_of_group(seen.best, values, ids, simdgroup, lane);
  if (simdgroup != 0 || lane != 0) return;
  device SamplePartial& out = partials[row * s.chunks + group.x];
  float all_l = -INFINITY, all_raw = -INFINITY, sum = 0.0f;
  uint any_nan = 0;
  for (uint g = 0; g < SG_SIMDGROUPS; ++g) {
    all_l = max(all_l, l_maxima[g]);
    all_raw = max(all_raw, raw_maxima[g]);
    any_nan |= nans[g];
  }
  for (uint g = 0; g < SG_SIMDGROUPS; ++g)
    if (raw_maxima[g] != -INFINITY) sum += raw_sums[g] * exp(raw_maxima[g] - all_raw);
  out.value = best.value;
  out.id = best.id;
  out.l_max = all_l;
  out.raw_max = all_raw;
  out.raw_sum = sum;
  out.nan = any_nan;
}

// The best z + g of what the cut leaves, of one chunk. Blocks that the cut drops whole are not read.
kernel void sample_draw(device const float* l [[buffer(SG_SAMPLE_PROCESSED)]],
                        device const SampleParams* params [[buffer(SG_SAMPLE_PARAMS)]],
                        device const float* block_max [[buffer(SG_SAMPLE_BLOCK_MAX)]],
                        device const SampleCut* cuts [[buffer(SG_SAMPLE_CUTS)]],
                        device SamplePartial* partials [[buffer(SG_SAMPLE_PARTIALS)]],
                        device const int* rows [[buffer(SG_SAMPLE_ROWS), function_constant(sg_rows)]],
                        constant SampleShape& s [[buffer(SG_SAMPLE_SHAPE)]],
                        uint2 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float values[SG_SIMDGROUPS];
  threadgroup uint ids[SG_SIMDGROUPS];
  const uint row = group.y, vocab = s.vocab;
  device const SampleParams& p = params[request_of(rows, row)];
  const float temperature = p.temperature;
  if (!(temperature > 0.0f)) return;  // greedy: sample_scan has it
  const float inv_t = 1.0f / temperature;
  const SampleCut cut = SampleCut{cuts[row].value, cuts[row].id};

  SampleBest best = SampleBest{-INFINITY, ~0u};
  for (uint at = simdgroup * SG_SAMPLE_BLOCK; at < SG_SAMPLE_CHUNK; at += SG_SIMDGROUPS * SG_SAMPLE_BLOCK) {
    const uint first = group.x * SG_SAMPLE_CHUNK + at, i = first + lane * 4;
    if (first >= vocab) break;
    if (block_max[row * s.blocks + first / SG_SAMPLE_BLOCK] < cut.value) continue;
    const float4 x = sg_load_tokens(l + ulong(row) * vocab, i, vocab);
    bool4 kept;
    for (uint j = 0; j < 4; ++j) kept[j] = sg_kept(x[j], i + j, cut);
    if (any(kept)) take_best(best, select(float4(-INFINITY), sg_scaled(x, inv_t) + noise(p, i), kept), i);
  }
  best = best_of_group(best, values, ids, simdgroup, lane);
  if (simdgroup != 0 || lane != 0) return;
  partials[row * s.chunks + group.x].value = best.value;
  partials[row * s.chunks + group.x].id = best.id;
}

// One block's candidates: the keys of four tokens, 0 behind the row's end.
inline uint4 keys_of(device const float* logits, uint i, uint vocab) {
  const float4 x = sg_load_tokens(logits, i, vocab);
  uint4 out = uint4(0);
  for (uint j = 0; j < 4; ++j)
    if (i + j < vocab) out[j] = sg_order_key(x[j]);
  return out;
}

// The chunks' findings as one; whole simdgroups call it, each for itself.
inline Seen sum_up(device const SamplePartial* partials, uint chunks, uint lane) {
  Seen seen = Seen{SampleBest{-INFINITY, ~0u}, -INFINITY, -INFINITY, 0.0f, false};
  for (uint c = lane; c < chunks; c += 32) {
    device const SamplePartial& part = partials[c];
    seen.best = sg_better(seen.best, SampleBest{part.value, part.id});
    seen.l_max = max(seen.l_max, part.l_max);
    seen.raw_max = max(seen.raw_max, part.raw_max);
    seen.nan = seen.nan || part.nan != 0;
  }
  seen.best = sg_best_of_lanes(seen.best);
  seen.l_max = simd_max(seen.l_max);
  seen.raw_max = simd_max(seen.raw_max);
  seen.nan = simd_any(seen.nan);
  for (uint c = lane; c < chunks; c += 32)
    if (partials[c].raw_max != -INFINITY) seen.raw_sum += partials[c].raw_sum * exp(partials[c].raw_max - seen.raw_max);
  seen.raw_sum = simd_sum(seen.raw_sum);
  return seen;
}

// The id of each row, its count, its step; the log probabilities where they are asked for. The N best: N times the best
// block, whose maximum then falls to what it has left.
kernel void sample_finish(device const SamplePartial* partials [[buffer(SG_SAMPLE_PARTIALS)]],
                          device SampleParams* params [[buffer(SG_SAMPLE_PARAMS)]],
                          device const float* logits [[buffer(SG_SAMPLE_LOGITS), function_constant(sg_logprobs)]],
                          device const float* raw_block_max
                          [[buffer(SG_SAMPLE_RAW_BLOCK_MAX), function_constant(sg_logprobs)]],
                          device uint* counts [[buffer(SG_SAMPLE_COUNTS), function_constant(sg_counts)]],
                          device int* ids [[buffer(SG_SAMPLE_IDS)]],
                          device float* logprobs [[buffer(SG_SAMPLE_LOGPROBS), function_constant(sg_logprobs)]],
                          device int* logprob_ids [[buffer(SG_SAMPLE_LOGPROB_IDS), function_constant(sg_logprobs)]],
                          device const int* rows [[buffer(SG_SAMPLE_ROWS), function_constant(sg_rows)]],
                          constant SampleShape& s [[buffer(SG_SAMPLE_SHAPE)]],
                          uint row [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup uint left[SG_SAMPLE_MAX_BLOCKS];  // key of the best that a block has left
  threadgroup uint keys[SG_SIMDGROUPS], blocks[SG_SIMDGROUPS];
  const uint request = request_of(rows, row);
  const Seen seen = sum_up(partials + row * s.chunks, s.chunks, lane);
  const bool good = !seen.nan && isfinite(seen.l_max);
  const int id = good ? int(seen.best.id) : SG_SAMPLE_NAN;  // ~0, none, is -1
  if (t == 0) {
    ids[row] = id;
    params[request].step += 1;
    if (sg_counts && id >= 0) counts[ulong(request) * s.vocab + uint(id)] += 1;
  }
  if (!sg_logprobs) return;

  device const float* x = logits + ulong(row) * s.vocab;
  device float* out = logprobs + row * (1 + s.top);
  device int* out_ids = logprob_ids + row * (1 + s.top);
  const int asked = id >= 0 ? min(params[request].top_logprobs, int(s.top)) : -1;
  const uint given = asked < 0 ? 0 : 1 + min(uint(asked), s.vocab);
  for (uint j = given + t; j < 1 + s.top; j += SG_SAMPLE_THREADS) {
    out[j] = -INFINITY;
    out_ids[j] = -1;
  }
  if (given == 0) return;
  const float log_sum = log(seen.raw_sum);
  if (t == 0) {
    out[0] = (x[id] - seen.raw_max) - log_sum;
    out_ids[0] = id;
  }
  for (uint b = t; b < s.blocks; b += SG_SAMPLE_THREADS) left[b] = sg_order_key(raw_block_max[row * s.blocks + b]);
  threadgroup_barrier(mem_flags::mem_threadgroup);

  uint last_key = ~0u, last_id = 0;  // what lies before or at it is taken
  for (uint j = 1; j < given; ++j) {
    uint key = 0, block = ~0u;
    for (uint b = t; b < s.blocks; b += SG_SAMPLE_THREADS)
      if (left[b] > key) {
        key = left[b];
        block = b;
      }
    const uint best = simd_max(key);
    const uint where = simd_min(key == best ? block : ~0u);
    if (lane == 0) {
      keys[simdgroup] = best;
      blocks[simdgroup] = where;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint g = 0; g < SG_SIMDGROUPS; ++g)
      if (g == 0 || keys[g] > key || (keys[g] == key && blocks[g] < block)) {
        key = keys[g];
        block = blocks[g];
      }
    const uint i = block * SG_SAMPLE_BLOCK + lane * 4;
    const uint4 own = keys_of(x, i, s.vocab);
    uint first = ~0u;
    for (uint k = 0; k < 4; ++k)
      if (own[k] == key && (key < last_key || i + k > last_id)) first = min(first, i + k);
    last_id = simd_min(first);
    last_key = key;
    uint next = 0;
    for (uint k = 0; k < 4; ++k)
      if (own[k] < key || (own[k] == key && i + k > last_id)) next = max(next, own[k]);
    next = simd_max(next);
    if (t == 0) {
      left[block] = next;
      out[j] = (x[last_id] - seen.raw_max) - log_sum;
      out_ids[j] = int(last_id);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}
