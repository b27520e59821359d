#pragma once
// Attention of the CPU device over KV blocks.
//
// Two forms. A run of rows of one sequence that is at most kSpanRows long goes span by span: kSpanKeys keys
// of one kv head give each of its query heads a partial (maximum, sum, weighted values), and the partials
// are merged in their order. Longer runs go tile by tile: some tokens against kTileKeys
// keys at a time, on packed float panels. Both partitions depend on positions only, never on the number of
// threads or rows, so a row's result does not either.

#include <cstdint>
#include <vector>

#include "core/thread_pool.h"
#include "encoder.h"

namespace saragossa::cpu {

struct VectorKernels;

/// A row of the cache: head_dim channels; scales: of u8.
struct KvRow {
  const uint8_t* data;
  const uint16_t* scales;
};

/// One attention op with raw pointers. Layouts: encoder.h.
struct AttentionCall {
  const float* q = nullptr;     // [rows, heads, head_dim]
  float* y = nullptr;           // [rows, heads, head_dim]
  const float* gate = nullptr;  // as y, which is multiplied with its sigmoid; none: null
  const uint8_t* k = nullptr;
  const uint8_t* v = nullptr;
  const uint16_t* k_scales = nullptr;  // of u8
  const uint16_t* v_scales = nullptr;
  DType dtype = DType::bf16;  // bf16, f32 or u8
  int64_t rows = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t blocks = 0, block_tokens = 0;
  const int32_t* positions = nullptr;
  const int32_t* sequence = nullptr;
  const int32_t* block_table = nullptr;  // [sequences, max_blocks]
  int64_t sequences = 0, max_blocks = 0;
  float scale = 1.0f, softcap = 0.0f;
  int64_t window = 0;
  bool one_order = false;  // long runs go by spans, too: then a row's sums do not depend on how many rows come with it

  int64_t group() const { return heads / kv_heads; }
  /// First key that a query at `position` sees.
  int64_t first_key(int64_t position) const { return window > 0 && position >= window ? position - window + 1 : 0; }
  /// Keys or values of one kv head from key `key` of `row`'s sequence on; rows are contiguous up to the end of the
  /// block.
  KvRow keys(int64_t row, int64_t kv_head, int64_t key) const { return at(k, k_scales, row, kv_head, key); }
  KvRow values(int64_t row, int64_t kv_head, int64_t key) const { return at(v, v_scales, row, kv_head, key); }

 private:
  KvRow at(const uint8_t* base, const uint16_t* scales, int64_t row, int64_t kv_head, int64_t key) const {
    const int64_t block = block_table[sequence[row] * max_blocks + key / block_tokens];
    const int64_t index = (block * kv_heads + kv_head) * block_tokens + key % block_tokens;
    return {base + index * head_dim * size_of(dtype), scales ? scales + index * kv_scales(head_dim) : nullptr};
  }
};

AttentionCall attention_call(const Tensor& y, const Tensor& q, const KvLayer& kv, const Batch& batch,
                             const AttentionParams& params);

constexpr int64_t kSpanRows = 8;    // a run up to this goes by spans
constexpr int64_t kSpanKeys = 64;   // keys of a span, from a multiple of it, where it divides a block
constexpr int64_t kTileKeys = 128;  // keys that a tile takes at a time, from a multiple of it
constexpr int64_t kPadding = 32;    // floats: twice the widest vector

constexpr int64_t padded(int64_t n) { return (n + kPadding - 1) / kPadding * kPadding; }
/// Floats of one head's partial: maximum, sum, then head_dim weighted values from kPadding on.
constexpr int64_t partial_size(int64_t head_dim) { return kPadding + padded(head_dim); }

struct AttentionKernels {
  /// The reference, for the scalar set alone: one row and head over all its keys. scores: [keys].
  void (*row)(const AttentionCall& call, int64_t row, int64_t head, float* scores);
  /// Keys [begin, end) of one block for the group of `kv_head`: partial [group, partial_size]. work: span_work floats.
  void (*span)(const AttentionCall& call, int64_t row, int64_t kv_head, int64_t begin, int64_t end, float* partial,
               float* work);
  /// y[head_dim] from `n` partials, `stride` floats apart.
  void (*merge)(float* y, const float* partials, int64_t n, int64_t stride, int64_t head_dim);
  /// Rows [row, row + rows) of one sequence, all heads of `kv_head`. work: tile_work floats.
  void (*tile)(const AttentionCall& call, int64_t row, int64_t rows, int64_t kv_head, float* work);
};

/// Most tokens of a tile: about 256 rows (tokens x heads of a group), which share the packed keys.
int64_t tile_tokens(const AttentionCall& call);
int64_t span_work(const AttentionCall& call);
int64_t tile_work(const AttentionCall& call);

/// Buffers kept between calls.
struct AttentionWorkspace {
  struct Run {
    int64_t row = 0, rows = 0;
  };
  std::vector<Run> runs, tiles;
  std::vector<float> partials;
  std::vector<std::vector<float>> work;  // per worker
};

void run_attention(const AttentionCall& call, const VectorKernels& kernels, ThreadPool& pool,
                   AttentionWorkspace& space);

}  // namespace saragossa::cpu
