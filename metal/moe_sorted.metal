// Mixtures of experts for many rows: places (a row's choices) sorted by expert, each expert's as a matrix product.
//
//   moe_sort    order: places by expert; tiles of up to `rows` of them, as expert, first place in order, places
//   moe_matmul  the product of a tile: SG_GATED: h[t, k] = act(gate_e x[t]) * up_e x[t]; else parts[place] = down_e
//               h[place], a place behind T * chosen being a row's of the shared expert
//   moe_reduce  y[t] = (y[t] +) sum_k weights[t, k] * parts[t, k] + sigmoid(gate[t]) * parts[shared t]
//
// Layout: as moe.metal; parts f32 [T * (chosen + 1), hidden] (without a shared expert T * chosen). Ownership: moe_sort
// is one threadgroup: counts, their sums, then every place its position (atomic, so in any order within an expert: a
// row's sums do not depend on it). moe_matmul: a threadgroup makes a tile of SG_ROWS places by 64 outputs (gated: 32 of
// each weight) as matmul.metal does, rows gathered on the way in and scattered on the way out; tiles of the shared
// expert behind those of the others; there are as many threadgroups as there can be tiles, those without one return.
// moe_reduce: a thread an element. Precision and order: common/matmul.h; experts in the order of their choice. Limits:
// as moe.metal and matmul.metal. No figure of it was measured.

#include <metal_stdlib>

#include "common/matmul.h"
#include "common/moe.h"

using namespace metal;

constant constexpr uint kOutputs = SG_MATMUL_OUTPUTS;
constant constexpr uint kEach = SG_MOE_MOST_EXPERTS / 32;  // experts of a lane
constant constexpr uint kNone = 0xffffffffu;

kernel void moe_sort(device const int* ids [[buffer(SG_SORT_IDS)]], device uint* order [[buffer(SG_SORT_ORDER)]],
                     device uint* tiles [[buffer(SG_SORT_TILES)]], constant SortParams& p [[buffer(SG_SORT_PARAMS)]],
                     uint thread_index [[thread_index_in_threadgroup]], uint threads [[threads_per_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup atomic_uint counts[SG_MOE_MOST_EXPERTS];
  threadgroup uint first_tile[SG_MOE_MOST_EXPERTS];
  threadgroup uint ends[2];  // of the places, of the tiles
  for (uint e = thread_index; e < SG_MOE_MOST_EXPERTS; e += threads)
    atomic_store_explicit(counts + e, 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = thread_index; i < p.places; i += threads)
    if (uint(ids[i]) < p.experts) atomic_fetch_add_explicit(counts + ids[i], 1u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simdgroup == 0) {
    uint places = 0, mine = 0;
    for (uint j = 0; j < kEach; ++j) {
      const uint n = atomic_load_explicit(counts + lane * kEach + j, memory_order_relaxed);
      places += n, mine += (n + p.rows - 1) / p.rows;
    }
    uint place = simd_prefix_exclusive_sum(places), tile = simd_prefix_exclusive_sum(mine);
    if (lane == 31) ends[0] = place + places, ends[1] = tile + mine;
    for (uint j = 0; j < kEach; ++j) {
      const uint e = lane * kEach + j, n = atomic_load_explicit(counts + e, memory_order_relaxed);
      for (uint done = 0; done < n; done += p.rows, ++tile) {
        tiles[3 * tile] = e;
        tiles[3 * tile + 1] = place + done;
        tiles[3 * tile + 2] = min(p.rows, n - done);
      }
      atomic_store_explicit(counts + e, place, memory_order_relaxed);  // from here on: where the next place goes
      place += n;
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = ends[1] + thread_index; i < p.tiles; i += threads) tiles[3 * i + 2] = 0;
  for (uint i = thread_index; i < p.places; i += threads)
    if (uint(ids[i]) < p.experts) order[atomic_fetch_add_explicit(counts + ids[i], 1u, memory_order_relaxed)] = i;
}

/// Rows of x anywhere, each at so many floats; kNone: none.
struct GatheredRows {
  device const float* x;
  threadgroup const uint* at;
  uint in;

  float4 load(uint t, uint k) const {
    const uint row = at[t];
    if (row == kNone || k >= in) return float4(0.0f);
    device const float* from = x + row + k;
    if (!SG_RAGGED) return *(device const float4*)from;
    float4 v(0.0f);
    for (uint i = 0; i < 4; ++i)
      if (k + i < in) v[i] = from[i];
    return v;
  }
};

kernel void moe_matmul(SG_MOE_ARGUMENTS, device float* y [[buffer(SG_MOE_Y)]],
                       device const float* x [[buffer(SG_MOE_X)]],
                       device const uint* order [[buffer(SG_MOE_ORDER), function_constant(sg_routed)]],
                       device const uint* tiles [[buffer(SG_MOE_TILES), function_constant(sg_routed)]],
                       threadgroup float* shared [[threadgroup(0)]], uint group [[threadgroup_position_in_grid]],
                       uint thread_index [[thread_index_in_threadgroup]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup uint x_at[64], y_at[64];
  const bool of_shared = sg_shared && group >= p.first_shared;
  uint tile = group, first_place = 0, places = 0;
  MoeSides s;
  if (sg_shared && of_shared) {
    tile -= p.first_shared;
    first_place = tile / p.shared_tiles * SG_ROWS;
    places = min(SG_ROWS, p.rows - first_place);
    tile %= p.shared_tiles;
    s = MoeSides{SG_MOE_SHARED_SIDE0, SG_MOE_SHARED_SIDE0, 0, 0, p.shared_out, p.shared_in};
    if (sg_pair) s.up = SG_MOE_SHARED_SIDE1;
  } else if (sg_routed) {
    const uint which = tile / p.tiles;
    places = tiles[3 * which + 2];
    if (places == 0) return;
    const uint e = tiles[3 * which];
    first_place = tiles[3 * which + 1];
    tile %= p.tiles;
    s = MoeSides{SG_MOE_SIDE0, SG_MOE_SIDE0, e * p.stride0 + p.offset0, e * p.stride1 + p.offset1, p.out, p.in};
    if (sg_pair) s.up = SG_MOE_SIDE1;
  }
  for (uint i = thread_index; i < SG_ROWS; i += 128) {
    uint from = kNone, to = kNone;
    if (i < places) {
      const uint place = of_shared ? first_place + i : order[first_place + i];
      const uint t = of_shared ? place : place / p.chosen;
      const uint column =
          of_shared ? p.width - (sg_pair ? p.shared_out : p.shared_in) : place % p.chosen * (sg_pair ? p.out : p.in);
      from = sg_pair ? t * p.in : t * p.width + column;
      to = sg_pair ? t * p.width + column : of_shared ? p.rows * p.chosen + t : place;
    }
    x_at[i] = from, y_at[i] = to;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);

  const uint taken = sg_pair ? kOutputs / 2 : kOutputs, first = tile * taken;
  const LinearRow row = sg_moe_row(s, first, taken, thread_index / 2);
  sg_multiply(shared, GatheredRows{x, x_at, s.in}, row, 0, s.in, s.in, thread_index, simdgroup);
  for (uint e = thread_index; e < SG_ROWS * taken; e += 128) {
    const uint r = e / taken, c = e % taken, o = first + c;
    if (r >= places || o >= s.out) continue;
    const float sum = shared[r * SG_MATMUL_SUM_PITCH + c];
    if (sg_pair)
      y[y_at[r] + o] = sg_activate(sum, p.activation) * shared[r * SG_MATMUL_SUM_PITCH + c + taken];
    else
      y[ulong(y_at[r]) * s.out + o] = sum;
  }
}

kernel void moe_reduce(device float* y [[buffer(SG_MOE_Y)]], device const float* parts [[buffer(SG_MOE_X)]],
                       device const int* ids [[buffer(SG_MOE_IDS)]],
                       device const float* weights [[buffer(SG_MOE_WEIGHTS)]],
                       device const float* gate [[buffer(SG_MOE_GATE), function_constant(sg_shared_gate)]],
                       constant MoeParams& p [[buffer(SG_MOE_PARAMS)]], uint at [[thread_position_in_grid]]) {
  if (at >= p.rows * p.out) return;
  const uint t = at / p.out, o = at % p.out;
  float sum = 0.0f;
  for (uint k = 0; k < p.chosen; ++k) {
    const uint place = t * p.chosen + k;
    const int id = ids[place];
    if (uint(id) < p.experts)
      sum = fma(weights[place], parts[ulong(place) * p.out + o], sum);
    else
      sum = NAN;
  }
  if (sg_shared) {
    const float part = parts[ulong(p.rows * p.chosen + t) * p.out + o];
    sum = fma(sg_shared_gate ? sg_sigmoid(gate[t]) : 1.0f, part, sum);
  }
  y[at] = SG_EPILOGUE == SG_ADD ? y[at] + sum : sum;
}
