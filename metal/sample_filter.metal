// top-k, top-p and min-p of sampling as one cut per row: what lies before it may be drawn (sample.metal draws).
// Rules: params/sample.h; formulas: common/sample_math.h.
//
//   top-k  the k largest l, the lower id on a tie: the k-th largest block maximum is no more than the k-th largest l,
//          so a list of what reaches it, from the blocks that reach it, holds them; the k-th by radix selection
//   top-p  of what is left, the shortest head whose mass reaches its share: behind top-k a selection by mass in the
//          list; else a histogram of mass by depth finds the bucket of the cut, and the list holds that bucket
//   min-p  a floor from the largest z
//
// One threadgroup of 1024 a row. Masses are integers: the same cut on every device, in any order. The row is read once
// with top-p alone, in the blocks within 24 units of the largest z; top-k of fewer than the blocks reads their maxima
// and about k blocks. Not timed on a GPU yet.

#include <metal_stdlib>

#include "common/radix_select.h"
#include "common/sample_math.h"
#include "params/sample_kernels.h"

using namespace metal;

#define SG_SIMDGROUPS (SG_SAMPLE_CUT_THREADS / 32)

constant uint SG_HAS_ROWS [[function_constant(0)]];
constant bool sg_rows = SG_HAS_ROWS != 0;

// A row as this threadgroup sees it.
struct CutRow {
  device const float* l;
  device const float* block_max;
  device uint* list;
  uint vocab;
  uint blocks;
  float inv_t;
  float z_max;
  uint t;
  uint lane;
  uint simdgroup;

  uint depth(float x) const { return sg_bucket(sg_scaled(x, inv_t), z_max); }
  // Blocks of this simdgroup come 32 at a time, one a lane.
  uint block_of(uint batch, uint from) const { return (batch * 32 + from) * SG_SIMDGROUPS + simdgroup; }
  uint batches() const { return (blocks + SG_SIMDGROUPS * 32 - 1) / (SG_SIMDGROUPS * 32); }
};

// What a list takes up: l >= floor, or one bucket of depth.
struct Wanted {
  float floor;
  uint bucket;
  bool by_bucket;
};

// The tokens that are wanted, in any order; their number.
inline uint collect(thread const CutRow& row, Wanted wanted, threadgroup atomic_uint* size) {
  if (row.t == 0) atomic_store_explicit(size, 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint batch = 0; batch < row.batches(); ++batch) {
    const uint own = row.block_of(batch, row.lane);
    bool some = own < row.blocks;
    if (some) {
      const float top = row.block_max[own];
      some = wanted.by_bucket ? row.depth(top) <= wanted.bucket : top >= wanted.floor;
    }
    for (uint votes = uint(ulong(simd_ballot(some))); votes != 0; votes &= votes - 1) {
      const uint i = row.block_of(batch, ctz(votes)) * SG_SAMPLE_BLOCK + row.lane * 4;
      const float4 x = sg_load_tokens(row.l, i, row.vocab);
      bool4 take;
      for (uint j = 0; j < 4; ++j)
        take[j] = i + j < row.vocab && (wanted.by_bucket ? row.depth(x[j]) == wanted.bucket : x[j] >= wanted.floor);
      const uint count = uint(take.x) + uint(take.y) + uint(take.z) + uint(take.w);
      const uint before = simd_prefix_exclusive_sum(count), all = simd_sum(count);
      uint at = 0;
      if (row.lane == 0) at = atomic_fetch_add_explicit(size, all, memory_order_relaxed);
      at = simd_broadcast_first(at) + before;
      for (uint j = 0; j < 4; ++j)
        if (take[j]) row.list[at++] = i + j;
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  return atomic_load_explicit(size, memory_order_relaxed);
}

// Mass by depth, the shallowest bucket on top.
inline void histogram(thread const CutRow& row, SumBins bins) {
  bins.clear(row.t);
  for (uint batch = 0; batch < row.batches(); ++batch) {
    const uint own = row.block_of(batch, row.lane);
    const bool some = own < row.blocks && row.depth(row.block_max[own]) < SG_MASS_BUCKETS;
    for (uint votes = uint(ulong(simd_ballot(some))); votes != 0; votes &= votes - 1) {
      const uint i = row.block_of(batch, ctz(votes)) * SG_SAMPLE_BLOCK + row.lane * 4;
      const float4 x = sg_load_tokens(row.l, i, row.vocab);
      for (uint j = 0; j < 4; ++j) {
        const uint mass = sg_mass(sg_scaled(x[j], row.inv_t), row.z_max);
        if (mass != 0) bins.add(255 - min(row.depth(x[j]), uint(SG_MASS_BUCKETS - 1)), mass);
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

[[max_total_threads_per_threadgroup(SG_SAMPLE_CUT_THREADS)]] kernel void sample_cut(
    device const float* l [[buffer(SG_SAMPLE_PROCESSED)]],
    device const SampleParams* params [[buffer(SG_SAMPLE_PARAMS)]],
    device const float* block_max [[buffer(SG_SAMPLE_BLOCK_MAX)]],
    device const SamplePartial* partials [[buffer(SG_SAMPLE_PARTIALS)]], device uint* list [[buffer(SG_SAMPLE_LIST)]],
    device SampleCut* cuts [[buffer(SG_SAMPLE_CUTS)]],
    device const int* rows [[buffer(SG_SAMPLE_ROWS), function_constant(sg_rows)]],
    constant SampleShape& s [[buffer(SG_SAMPLE_SHAPE)]], uint group [[threadgroup_position_in_grid]],
    uint t [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup atomic_uint low[256], high[256];
  threadgroup atomic_uint size;
  device const SampleParams& p = params[sg_rows ? uint(rows[group]) : group];
  const float temperature = p.temperature;
  if (!(temperature > 0.0f)) return;  // greedy
  float l_max = -INFINITY;
  bool bad = false;
  for (uint c = lane; c < s.chunks; c += 32) {
    l_max = max(l_max, partials[group * s.chunks + c].l_max);
    bad = bad || partials[group * s.chunks + c].nan != 0;
  }
  l_max = simd_max(l_max);
  bad = simd_any(bad) || !isfinite(l_max);

  const ulong tokens = ulong(group) * s.vocab;
  const float inv_t = 1.0f / temperature;
  const CutRow row = CutRow{l + tokens,
                            block_max + group * s.blocks,
                            list + tokens,
                            s.vocab,
                            s.blocks,
                            inv_t,
                            sg_scaled(l_max, inv_t),
                            t,
                            lane,
                            simdgroup};
  const SumBins bins = SumBins{low, high};
  const SelectWeight by_count = SelectWeight{false, 0.0f, 0.0f}, by_mass = SelectWeight{true, inv_t, row.z_max};
  const SampleCut all = SampleCut{-INFINITY, 0x7fffffff};
  const float top_p = p.top_p, min_p = p.min_p;
  const uint top_k = p.top_k > 0 ? uint(p.top_k) : 0;
  const bool by_k = !bad && top_k > 0 && top_k < s.vocab;
  const bool by_p = !bad && top_p < 1.0f;
  const uint share = by_p ? uint(top_p * 4294967296.0f) : 0;

  SampleCut cut = all;
  uint listed = 0;
  if (by_k) {
    float floor = -INFINITY;
    if (top_k < s.blocks)
      floor = sg_select<false, SG_SAMPLE_CUT_THREADS>(row.block_max, row.list, s.blocks, all, by_count, top_k, 0, bins,
                                                      t, lane)
                  .value;
    listed = collect(row, Wanted{floor, 0, false}, &size);
    cut = sg_select<true, SG_SAMPLE_CUT_THREADS>(row.l, row.list, listed, all, by_count, top_k, 0, bins, t, lane);
  }
  if (by_p) {
    ulong target = 1;
    uint of_all = share;
    if (!by_k) {
      histogram(row, bins);
      const BinPick pick = sg_pick_bin(bins, target, share, lane);
      target = pick.target - pick.above;
      of_all = 0;
      listed = collect(row, Wanted{0.0f, 255 - pick.bin, true}, &size);
    }
    cut = sg_select<true, SG_SAMPLE_CUT_THREADS>(row.l, row.list, listed, cut, by_mass, target, of_all, bins, t, lane);
  }
  if (min_p > 0.0f) {
    const float log_min = sg_log_positive(max(min_p, 1.17549435e-38f));
    const float floor = min((row.z_max + log_min) * temperature, l_max);
    if (floor > cut.value) cut = SampleCut{floor, 0x7fffffff};
  }
  if (t == 0) {
    cuts[group].value = cut.value;
    cuts[group].id = cut.id;
  }
}
