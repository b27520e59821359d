#pragma once
// Selection in a list by one threadgroup: eight bits of the order at a time, a histogram of weights for each.
// Weights are integers and their sums 64 bits wide, so the order of additions does not show.

#include "common/sample_math.h"

// 256 sums in threadgroup memory. Its threads add; then each simdgroup reads on its own.
struct SumBins {
  threadgroup metal::atomic_uint* low;
  threadgroup metal::atomic_uint* high;

  void add(uint bin, uint weight) const {
    const uint old = metal::atomic_fetch_add_explicit(low + bin, weight, metal::memory_order_relaxed);
    if (old + weight < old) metal::atomic_fetch_add_explicit(high + bin, 1u, metal::memory_order_relaxed);
  }
  ulong read(uint bin) const {
    return ulong(metal::atomic_load_explicit(high + bin, metal::memory_order_relaxed)) << 32 |
           metal::atomic_load_explicit(low + bin, metal::memory_order_relaxed);
  }
  // Between barriers: those before have read, those behind may add.
  void clear(uint t) const {
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (t < 256) {
      metal::atomic_store_explicit(low + t, 0u, metal::memory_order_relaxed);
      metal::atomic_store_explicit(high + t, 0u, metal::memory_order_relaxed);
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
  }
};

inline ulong sg_shuffle64(ulong x, ushort lane) {
  return ulong(metal::simd_shuffle(uint(x >> 32), lane)) << 32 | metal::simd_shuffle(uint(x), lane);
}

// Sums over lanes 0 to this one.
inline ulong sg_prefix_sum64(ulong x, uint lane) {
  for (ushort step = 1; step < 32; step *= 2) {
    const uint low = metal::simd_shuffle_up(uint(x), step), high = metal::simd_shuffle_up(uint(x >> 32), step);
    if (lane >= step) x += ulong(high) << 32 | low;
  }
  return x;
}

// Where a share of the total lies: total * share / 2^32, at least 1.
inline ulong sg_share(ulong total, uint share) {
  return metal::max((total >> 32) * share + (((total & 0xffffffffu) * share) >> 32), ulong(1));
}

struct BinPick {
  uint bin;
  ulong above;  // sum of the bins over it
  ulong sum;    // its own
  ulong target;
};

// The bin in which the sum from the top reaches `target`, or the `share` of the whole where that is not 0.
// Whole simdgroups call it.
inline BinPick sg_pick_bin(SumBins bins, ulong target, uint share, uint lane) {
  const uint top = 255 - lane * 8;
  ulong own = 0;
  for (uint j = 0; j < 8; ++j) own += bins.read(top - j);
  const ulong upto = sg_prefix_sum64(own, lane);
  const ulong total = sg_shuffle64(upto, 31);
  if (share != 0) target = sg_share(total, share);
  target = metal::min(target, total);
  BinPick out = BinPick{0, upto - own, 0, target};
  const bool mine = out.above < target && target <= upto;
  if (mine)
    for (uint j = 0; j < 8; ++j) {
      out.bin = top - j;
      out.sum = bins.read(out.bin);
      if (out.above + out.sum >= target) break;
      out.above += out.sum;
    }
  const ushort from = ushort(metal::ctz(uint(ulong(metal::simd_ballot(mine))) | 0x80000000u));
  return BinPick{metal::simd_shuffle(out.bin, from), sg_shuffle64(out.above, from), sg_shuffle64(out.sum, from),
                 target};
}

// What a selection weighs its entries by.
struct SelectWeight {
  bool by_mass;  // else each counts 1
  float inv_t;
  float z_max;
};

// Entries i < n: token list[i], or i where LISTED is 0; only those that `within` leaves. In the order of falling value,
// then rising id, the cut behind the shortest head whose weights reach `target` (or `share` of the whole).
// Whole threadgroups of THREADS call it.
template <bool LISTED, uint THREADS>
inline SampleCut sg_select(device const float* values, device const uint* list, uint n, SampleCut within,
                           SelectWeight weight, ulong target, uint share, SumBins bins, uint t, uint lane) {
  ulong prefix = 0;  // 32 bits of value, 24 of id
  for (uint shift = 48;; shift -= 8) {
    bins.clear(t);
    for (uint i = t; i < n; i += THREADS) {
      const uint id = LISTED ? list[i] : i;
      const float value = values[id];
      const ulong order = ulong(sg_order_key(value)) << 24 | (0xffffffu - id);
      if ((order ^ prefix) >> (shift + 8) != 0 || !sg_kept(value, id, within)) continue;
      const uint w = weight.by_mass ? sg_mass(sg_scaled(value, weight.inv_t), weight.z_max) : 1u;
      if (w != 0) bins.add(uint(order >> shift) & 255u, w);
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    const BinPick pick = sg_pick_bin(bins, target, share, lane);
    share = 0;
    target = pick.target - pick.above;
    prefix |= ulong(pick.bin) << shift;
    // Here all that is left has one value: ids matter only where some of it goes.
    if (shift == 24 && target == pick.sum) return SampleCut{sg_key_value(uint(prefix >> 24)), 0x7fffffff};
    if (shift == 0) break;
  }
  return SampleCut{sg_key_value(uint(prefix >> 24)), int(0xffffffu - (uint(prefix) & 0xffffffu))};
}
