// The delta rule of long runs, SG_DELTA_CHUNK (32) rows at once, on 8x8 simdgroup matrices: what delta_rule_rows
// (gated_delta.metal) makes row by row. With d(t, j) the product of the decays of rows j + 1 .. t of a chunk, d(t) of
// rows 0 .. t, and S the state in front of it (arXiv 2412.06464):
//
//   delta_t = beta_t (v_t - d(t) S k_t) + sum over j < t of A(t, j) delta_j,  A(t, j) = -beta_t d(t, j) (k_j . k_t)
//   y_t     = d(t) S q_t + sum over j <= t of P(t, j) delta_j,                P(t, j) = d(t, j) (k_j . q_t)
//   S'      = d(last) S + sum over j of d(last, j) delta_j k_j^T
//
// Layout: as gated_delta.metal. Ownership: a threadgroup of 4 simdgroups has 32 value rows of a head from the first row
// of a run to its last; a simdgroup has 8 of them and keeps its S [8, key_dim] in registers, as C matrices (those
// behind key_dim are zero). So matrices are transposed: delta and y are [8 value rows, 32 rows of the run]. k and q of
// a chunk go through threadgroup memory by 32 channels; simdgroup s makes rows [8s, 8s + 8) of A and P, which every
// threadgroup of the head makes anew. A and P then lie where k and q did. The diagonal blocks of 1 - A are inverted, a
// lane a column, and the system is solved block by block. What a lane holds of a matrix is never assumed.
//
// Precision and order: f32. d is made by multiplication in ascending t, so nothing is above 1; below 1e-30 it is zero.
// Sums go over key_dim and over j ascending by eights, so neither the slice of the value rows nor other runs show in
// the bits. They are not those of delta_rule_rows. Chunks count from the run's first row; the rows that the last one
// lacks have k = q = 0, decay 1 and beta 0, which changes nothing. So a run that is cut at a multiple of 32 gives the
// same bits as long as its parts are taken by this kernel, too.
//
// Limits: key_dim a multiple of 8 and at most SG_DELTA_MOST_KEY_DIM; any value_dim. Runs of fewer rows than
// p.chunked_rows are left to delta_rule_rows, and the state of the last row alone is kept. Threadgroup memory:
// SG_DELTA_CHUNK_FLOATS, 15.5 KB. No figure of it was measured on a GPU.

#include <metal_simdgroup_matrix>
#include <metal_stdlib>

#include "common/delta.h"

using namespace metal;

constant constexpr uint kRows = SG_DELTA_CHUNK, kBlocks = kRows / 8;
constant constexpr uint kPitch = SG_DELTA_PITCH;  // floats of a row of 32 in threadgroup memory
constant constexpr uint kThreads = SG_DELTA_CHUNK_THREADS;

/// Threadgroup memory.
struct Shared {
  threadgroup float* k;                                    // [32, pitch]: 32 channels of the chunk's keys; then A
  threadgroup float* q;                                    // the same of its queries; then P
  threadgroup float* part;                                 // [8, pitch] of this simdgroup, for matrices on their way
  threadgroup float* inverse;                              // [4, 8, 8]: of the diagonal blocks of 1 - A
  threadgroup float *decay, *beta, *from_first, *to_last;  // [32]: of row t; d(t), d(last, t)
};

/// A thread's place, and what it works for.
struct Place {
  uint thread_index, lane, simdgroup;
  uint value;  // first value row of the simdgroup
  Head head;
};

/// Channels [first, first + 32) of `to`'s rows, zero behind the run's end and the head's.
inline void stage(threadgroup float* to, device const float* from, uint first, uint rows, Place at) {
  for (uint e = at.thread_index; e < kRows * 32; e += kThreads) {
    const uint t = e / 32, c = e % 32;
    to[t * kPitch + c] = t < rows && first + c < SG_KEY_DIM ? from[ulong(t) * at.head.channels + first + c] : 0.0f;
  }
}

/// S of the simdgroup's value rows from a slot; -1: zeros, below it NaN; rows that the head does not have are zero.
template <uint C>
inline void load_state(thread simdgroup_float8x8* s, device const float* states, int slot, Shared shared,
                       constant DeltaParams& p, Place at) {
  for (uint c0 = 0; c0 < C; c0 += 4) {
    for (uint i = at.lane; i < 256; i += 32) {
      const uint row = at.value + i / 32, c = 8 * c0 + i % 32;
      const bool mine = row < p.value_dim && c < SG_KEY_DIM;
      float x = 0.0f;
      if (mine && slot >= 0) x = states[state_at(slot, at.head, row, p) + c];
      if (mine && slot < -1) x = NAN;
      shared.part[i / 32 * kPitch + i % 32] = x;
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint c = 0; c < 4; ++c) simdgroup_load(s[c0 + c], shared.part + 8 * c, kPitch);
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
}

template <uint C>
inline void store_state(thread simdgroup_float8x8* s, device float* states, int slot, Shared shared,
                        constant DeltaParams& p, Place at) {
  for (uint c0 = 0; c0 < C; c0 += 4) {
    for (uint c = 0; c < 4; ++c) simdgroup_store(s[c0 + c], shared.part + 8 * c, kPitch);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = at.lane; i < 256; i += 32) {
      const uint row = at.value + i / 32, c = 8 * c0 + i % 32;
      if (row < p.value_dim && c < SG_KEY_DIM)
        states[state_at(slot, at.head, row, p) + c] = shared.part[i / 32 * kPitch + i % 32];
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
}

/// d below 1e-30 is nothing: numbers that are not normal never arise.
inline float times(float d, float decay) { return d * decay < 1e-30f ? 0.0f : d * decay; }

/// Products of keys become A and P; d(t) and d(last, t); the inverses. A lane has a column. All threads must call.
inline void relate(Shared shared, Place at) {
  const uint j = at.lane;
  if (at.simdgroup < 2) {
    threadgroup float* column = (at.simdgroup == 0 ? shared.k : shared.q) + j;
    float d = 1.0f;
    for (uint t = j / 8 * 8; t < kRows; ++t) {
      if (t > j) d = times(d, shared.decay[t]);
      const bool seen = at.simdgroup == 0 ? t > j : t >= j;
      const float factor = at.simdgroup == 0 ? -shared.beta[t] * d : d;
      column[t * kPitch] = seen ? factor * column[t * kPitch] : 0.0f;
    }
  } else {
    float d = 1.0f;
    const bool forward = at.simdgroup == 2;
    for (uint t = 0; t < kRows; ++t)
      if (forward ? t <= j : t > j) d = times(d, shared.decay[t]);
    (forward ? shared.from_first : shared.to_last)[j] = d;
  }
  if (at.simdgroup == 0) {
    simdgroup_barrier(mem_flags::mem_threadgroup);
    const uint block = j / 8, c = j % 8;
    threadgroup const float* a = shared.k + 8 * block * (kPitch + 1);
    float x[8];
    for (uint t = 0; t < 8; ++t) {
      x[t] = t == c ? 1.0f : 0.0f;
      for (uint i = 0; i < t; ++i) x[t] = fma(a[t * kPitch + i], x[i], x[t]);
      shared.inverse[64 * block + 8 * t + c] = x[t];
    }
  }
}

/// Products of the chunk that need no delta, transposed: S K^T, S Q^T; and the simdgroup's rows of K K^T and Q K^T.
template <uint C>
inline void multiply_keys(thread simdgroup_float8x8* s, thread simdgroup_float8x8* held,
                          thread simdgroup_float8x8* seen, device const float* x, uint rows, Shared shared, Place at) {
  simdgroup_float8x8 among[kBlocks], onto[kBlocks];
  for (uint t = 0; t < kBlocks; ++t) {
    held[t] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    seen[t] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    among[t] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    onto[t] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }
  for (uint c0 = 0; c0 < C; c0 += 4) {
    threadgroup_barrier(mem_flags::mem_threadgroup);  // what was there before is done with
    stage(shared.k, x + at.head.k_at(), 8 * c0, rows, at);
    stage(shared.q, x + at.head.q_at(), 8 * c0, rows, at);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint c = 0; c < 4; ++c) {
      simdgroup_float8x8 own_k, own_q;
      simdgroup_load(own_k, shared.k + 8 * at.simdgroup * kPitch + 8 * c, kPitch);
      simdgroup_load(own_q, shared.q + 8 * at.simdgroup * kPitch + 8 * c, kPitch);
      for (uint t = 0; t < kBlocks; ++t) {
        simdgroup_float8x8 k, q;
        simdgroup_load(k, shared.k + 8 * t * kPitch + 8 * c, kPitch, ulong2(0, 0), true);
        simdgroup_load(q, shared.q + 8 * t * kPitch + 8 * c, kPitch, ulong2(0, 0), true);
        simdgroup_multiply_accumulate(held[t], s[c0 + c], k, held[t]);
        simdgroup_multiply_accumulate(seen[t], s[c0 + c], q, seen[t]);
        if (t > at.simdgroup) continue;
        simdgroup_multiply_accumulate(among[t], own_k, k, among[t]);
        simdgroup_multiply_accumulate(onto[t], own_q, k, onto[t]);
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint t = 0; t < kBlocks; ++t) {
    if (t > at.simdgroup) continue;
    simdgroup_store(among[t], shared.k + 8 * at.simdgroup * kPitch + 8 * t, kPitch);
    simdgroup_store(onto[t], shared.q + 8 * at.simdgroup * kPitch + 8 * t, kPitch);
  }
}

/// The simdgroup's matrices [8, 32] to its part of threadgroup memory, and back.
inline void put(Shared shared, thread simdgroup_float8x8* m) {
  for (uint t = 0; t < kBlocks; ++t) simdgroup_store(m[t], shared.part + 8 * t, kPitch);
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

inline void take(Shared shared, thread simdgroup_float8x8* m) {
  simdgroup_barrier(mem_flags::mem_threadgroup);
  for (uint t = 0; t < kBlocks; ++t) simdgroup_load(m[t], shared.part + 8 * t, kPitch);
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

/// held = S K^T becomes delta: out of each block of rows those before it, then the block itself.
inline void solve(thread simdgroup_float8x8* held, device const float* v, uint rows, Shared shared,
                  constant DeltaParams& p, Place at) {
  put(shared, held);
  for (uint e = at.lane; e < 8 * kRows; e += 32) {
    const uint i = e % 8, t = e / 8;
    threadgroup float* x = shared.part + i * kPitch + t;
    const bool there = t < rows && at.value + i < p.value_dim;
    const float wanted = there ? v[ulong(t) * at.head.channels + at.value + i] : 0.0f;
    *x = shared.beta[t] * fma(-shared.from_first[t], *x, wanted);
  }
  take(shared, held);
  for (uint t = 0; t < kBlocks; ++t) {
    simdgroup_float8x8 m;
    for (uint j = 0; j < t; ++j) {
      simdgroup_load(m, shared.k + 8 * t * kPitch + 8 * j, kPitch, ulong2(0, 0), true);
      simdgroup_multiply_accumulate(held[t], held[j], m, held[t]);
    }
    simdgroup_load(m, shared.inverse + 64 * t, 8, ulong2(0, 0), true);
    simdgroup_multiply(held[t], held[t], m);
  }
}

/// y of the chunk: seen = S Q^T, scaled, and P of the deltas.
inline void write_outputs(device float* y, thread simdgroup_float8x8* seen, thread simdgroup_float8x8* delta, uint rows,
                          Shared shared, constant DeltaParams& p, Place at) {
  put(shared, seen);
  for (uint e = at.lane; e < 8 * kRows; e += 32) shared.part[e / 32 * kPitch + e % 32] *= shared.from_first[e % 32];
  take(shared, seen);
  for (uint t = 0; t < kBlocks; ++t)
    for (uint j = 0; j <= t; ++j) {
      simdgroup_float8x8 m;
      simdgroup_load(m, shared.q + 8 * t * kPitch + 8 * j, kPitch, ulong2(0, 0), true);
      simdgroup_multiply_accumulate(seen[t], delta[j], m, seen[t]);
    }
  put(shared, seen);
  for (uint e = at.lane; e < 8 * kRows; e += 32) {
    const uint i = e % 8, t = e / 8;
    if (t < rows && at.value + i < p.value_dim)
      y[ulong(t) * p.value_heads * p.value_dim + at.value + i] = shared.part[i * kPitch + t];
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

/// S behind the chunk.
template <uint C>
inline void advance(thread simdgroup_float8x8* s, thread simdgroup_float8x8* delta, device const float* x, uint rows,
                    Shared shared, Place at) {
  put(shared, delta);
  for (uint e = at.lane; e < 8 * kRows; e += 32) shared.part[e / 32 * kPitch + e % 32] *= shared.to_last[e % 32];
  take(shared, delta);
  const simdgroup_float8x8 whole(shared.from_first[kRows - 1]);  // on the diagonal
  for (uint c0 = 0; c0 < C; c0 += 4) {
    threadgroup_barrier(mem_flags::mem_threadgroup);  // A, or the channels before, are done with
    stage(shared.k, x + at.head.k_at(), 8 * c0, rows, at);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint c = 0; c < 4; ++c) {
      simdgroup_multiply(s[c0 + c], whole, s[c0 + c]);
      for (uint t = 0; t < kBlocks; ++t) {
        simdgroup_float8x8 k;
        simdgroup_load(k, shared.k + 8 * t * kPitch + 8 * c, kPitch);
        simdgroup_multiply_accumulate(s[c0 + c], delta[t], k, s[c0 + c]);
      }
    }
  }
}

/// Buffers of the kernel.
struct Buffers {
  device float* y;
  device const float* qkv;
  device const float* a;
  device const float* b;
  device float* states;
  float a_log, dt_bias;
};

/// Rows [begin, end) of a run, from the state of slot `from` to that of slot `to`.
template <uint C>
inline void chunks(Buffers buffers, uint begin, uint end, int from, int to, Shared shared, constant DeltaParams& p,
                   Place at) {
  simdgroup_float8x8 s[C], delta[kBlocks], seen[kBlocks];
  load_state<C>(s, buffers.states, from, shared, p, at);
  for (uint first = begin; first < end; first += kRows) {
    const uint rows = min(kRows, end - first);
    device const float* x = buffers.qkv + ulong(first) * at.head.channels;
    if (at.thread_index < kRows) {  // gates of the chunk before are done with since the barriers of advance
      const uint t = at.thread_index;
      Gate gate{1.0f, 0.0f};
      if (t < rows) {
        const ulong row = ulong(first + t) * p.value_heads + at.head.index;
        gate = gate_of(buffers.a[row], buffers.b[row], buffers.a_log, buffers.dt_bias);
      }
      shared.decay[t] = gate.decay;
      shared.beta[t] = gate.beta;
    }
    multiply_keys<C>(s, delta, seen, x, rows, shared, at);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    relate(shared, at);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    solve(delta, x + 2 * at.head.keys + at.head.index * p.value_dim, rows, shared, p, at);
    write_outputs(buffers.y + (ulong(first) * p.value_heads + at.head.index) * p.value_dim, seen, delta, rows, shared,
                  p, at);
    advance<C>(s, delta, x, rows, shared, at);
  }
  if (sg_keeps(to, p.slots)) store_state<C>(s, buffers.states, to, shared, p, at);
}

// Threadgroup (h, run, z): the z-th 32 value rows of the head.
kernel void delta_rule_chunks(
    device float* y [[buffer(SG_DELTA_Y)]], device const float* qkv [[buffer(SG_DELTA_QKV)]],
    device const float* a [[buffer(SG_DELTA_A)]], device const float* b [[buffer(SG_DELTA_B)]],
    device const float* a_log [[buffer(SG_DELTA_A_LOG)]], device const float* dt_bias [[buffer(SG_DELTA_DT_BIAS)]],
    device float* states [[buffer(SG_DELTA_STATES)]], device const int* run_starts [[buffer(SG_DELTA_RUN_STARTS)]],
    device const int* sequence [[buffer(SG_DELTA_SEQUENCE)]], device const int* state_in [[buffer(SG_DELTA_STATE_IN)]],
    device const int* state_out [[buffer(SG_DELTA_STATE_OUT)]], constant DeltaParams& p [[buffer(SG_DELTA_PARAMS)]],
    threadgroup float* memory [[threadgroup(SG_DELTA_STAGE)]], uint3 group [[threadgroup_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]], uint thread_index [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint begin = uint(run_starts[group.y]), end = uint(run_starts[group.y + 1]);
  if (end - begin < p.chunked_rows) return;  // delta_rule_rows has it
  threadgroup float* parts = memory + 2 * kRows * kPitch;
  threadgroup float* inverse = parts + 4 * 8 * kPitch;
  threadgroup float* gates = inverse + 64 * kBlocks;
  const Shared shared{memory,
                      memory + kRows * kPitch,
                      parts + simdgroup * 8 * kPitch,
                      inverse,
                      gates,
                      gates + kRows,
                      gates + 2 * kRows,
                      gates + 3 * kRows};
  const Place at{thread_index, lane, simdgroup, 32 * group.z + 8 * simdgroup, head_of(group.x, p)};
  const Buffers buffers{y, qkv, a, b, states, a_log[group.x], dt_bias[group.x]};
  const int from = sg_slot_in(state_in[sequence[begin]], p.slots), to = state_out[end - 1];
  if (SG_KEY_DIM <= 32) return chunks<4>(buffers, begin, end, from, to, shared, p, at);
  if (SG_KEY_DIM <= 64) return chunks<8>(buffers, begin, end, from, to, shared, p, at);
  if (SG_KEY_DIM <= 128) return chunks<16>(buffers, begin, end, from, to, shared, p, at);
  chunks<32>(buffers, begin, end, from, to, shared, p, at);
}
