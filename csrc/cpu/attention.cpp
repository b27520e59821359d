#include "cpu/attention.h"

#include <algorithm>

#include "cpu/tasks.h"
#include "cpu/vector_kernels.h"

namespace saragossa::cpu {
namespace {

// Below this many multiplications a pool costs more than it gives.
constexpr int64_t kSerialWork = 32 * 1024;

void check_row(const AttentionCall& c, int64_t row) {
  const int64_t position = c.positions[row], sequence = c.sequence[row];
  require(sequence >= 0 && sequence < c.sequences, "attention: row ", row, " is of sequence ", sequence, ", there are ",
          c.sequences);
  require(position >= 0 && position / c.block_tokens < c.max_blocks, "attention: position ", position,
          " is outside of a table of ", c.max_blocks, " blocks of ", c.block_tokens);
}

void check_blocks(const AttentionCall& c, int64_t row, int64_t first, int64_t last) {
  for (int64_t b = first / c.block_tokens; b <= last / c.block_tokens; ++b) {
    const int64_t block = c.block_table[c.sequence[row] * c.max_blocks + b];
    require(block >= 0 && block < c.blocks, "attention: block ", block, " of sequence ", c.sequence[row],
            " is outside of a cache of ", c.blocks);
  }
}

/// Rows of one sequence that follow each other.
void find_runs(const AttentionCall& c, std::vector<AttentionWorkspace::Run>& runs) {
  runs.clear();
  for (int64_t row = 0; row < c.rows; ++row) {
    check_row(c, row);
    const bool joins =
        !runs.empty() && c.sequence[row] == c.sequence[row - 1] && c.positions[row] == c.positions[row - 1] + 1;
    if (joins)
      ++runs.back().rows;
    else
      runs.push_back({row, 1});
  }
  for (const auto& run : runs)
    check_blocks(c, run.row, c.first_key(c.positions[run.row]), c.positions[run.row + run.rows - 1]);
}

void reference(const AttentionCall& c, const VectorKernels& kernels, ThreadPool& pool, AttentionWorkspace& space) {
  pool.run(c.rows * c.heads, [&](int64_t task, int worker) {
    const int64_t row = task / c.heads;
    float* scores = sized(space.work[static_cast<size_t>(worker)], c.positions[row] + 1);
    kernels.attention.row(c, row, task % c.heads, scores);
  });
}

/// Keys of a span: a part of a KV block, so that few kv heads and keys still divide among threads.
int64_t span_keys(const AttentionCall& c) { return c.block_tokens % kSpanKeys == 0 ? kSpanKeys : c.block_tokens; }

/// All spans of one run; a task is one span of one kv head, for all rows of the run.
void spans(const AttentionCall& c, const AttentionWorkspace::Run& run, const VectorKernels& kernels, ThreadPool& pool,
           AttentionWorkspace& space) {
  const int64_t keys_each = span_keys(c), group = c.group(), size = partial_size(c.head_dim);
  const int64_t last = c.positions[run.row + run.rows - 1];
  const int64_t span0 = c.first_key(c.positions[run.row]) / keys_each;
  const int64_t n_spans = last / keys_each - span0 + 1;
  const int64_t keys = last - c.first_key(c.positions[run.row]) + 1;
  // partials [rows, kv_heads, group, n_spans, size]
  float* partials = sized(space.partials, run.rows * c.heads * n_spans * size);
  const bool serial = run.rows * c.heads * keys * c.head_dim < kSerialWork;
  const int64_t stride = group * size;  // a span writes its group side by side

  each(pool, serial, c.kv_heads * n_spans, [&](int64_t task, int worker) {
    const int64_t kv_head = task % c.kv_heads, span = task / c.kv_heads;
    float* work = sized(space.work[static_cast<size_t>(worker)], span_work(c));
    for (int64_t r = 0; r < run.rows; ++r) {
      const int64_t position = c.positions[run.row + r];
      const int64_t begin = std::max((span0 + span) * keys_each, c.first_key(position));
      const int64_t end = std::min((span0 + span + 1) * keys_each, position + 1);
      if (begin >= end) continue;
      float* out = partials + ((r * c.kv_heads + kv_head) * n_spans + span) * stride;
      kernels.attention.span(c, run.row + r, kv_head, begin, end, out, work);
    }
  });
  for (int64_t r = 0; r < run.rows; ++r) {
    const int64_t position = c.positions[run.row + r];
    const int64_t first = c.first_key(position) / keys_each - span0, n = position / keys_each - span0 - first + 1;
    for (int64_t head = 0; head < c.heads; ++head) {
      const float* from = partials + ((r * c.kv_heads + head / group) * n_spans + first) * stride + head % group * size;
      const int64_t at = ((run.row + r) * c.heads + head) * c.head_dim;
      kernels.attention.merge(c.y + at, from, n, stride, c.head_dim);
      if (c.gate) kernels.sigmoid_mul(c.y + at, c.y + at, c.gate + at, c.head_dim);
    }
  }
}

}  // namespace

AttentionCall attention_call(const Tensor& y, const Tensor& q, const KvLayer& kv, const Batch& batch,
                             const AttentionParams& params) {
  AttentionCall call;
  call.q = raw_data<float>(q);
  call.y = raw_data<float>(y);
  call.k = raw_data<uint8_t>(kv.k);
  call.v = raw_data<uint8_t>(kv.v);
  call.dtype = kv.k.dtype;
  if (kv.k_scales) call.k_scales = raw_data<uint16_t>(kv.k_scales);
  if (kv.v_scales) call.v_scales = raw_data<uint16_t>(kv.v_scales);
  call.rows = q.shape[0];
  call.heads = q.shape[1];
  call.kv_heads = kv.k.shape[1];
  call.head_dim = q.shape[2];
  call.blocks = kv.k.shape[0];
  call.block_tokens = kv.block_tokens();
  call.positions = raw_data<int32_t>(batch.positions);
  call.sequence = raw_data<int32_t>(batch.sequence);
  call.block_table = raw_data<int32_t>(batch.block_table);
  call.sequences = batch.block_table.shape[0];
  call.max_blocks = batch.block_table.shape[1];
  call.scale = params.scale;
  call.softcap = params.softcap;
  call.window = params.window;
  return call;
}

int64_t span_work(const AttentionCall& c) {
  // Padded queries of the group, and their scores.
  return c.group() * (padded(c.head_dim) + padded(c.block_tokens));
}

int64_t tile_tokens(const AttentionCall& c) { return std::clamp<int64_t>(256 / c.group(), kSpanRows, 128); }

int64_t tile_work(const AttentionCall& c) {
  const int64_t rows = tile_tokens(c) * c.group() + kPadding, d = padded(c.head_dim);
  // Per row: query, weighted values, scores, maximum, sum, factor; then the packed keys and values.
  return rows * (2 * d + kTileKeys + 3) + 2 * kTileKeys * d;
}

void run_attention(const AttentionCall& c, const VectorKernels& kernels, ThreadPool& pool, AttentionWorkspace& space) {
  space.work.resize(static_cast<size_t>(pool.size()));
  find_runs(c, space.runs);
  if (kernels.attention.row) return reference(c, kernels, pool, space);

  // Smaller tiles where there are too few for the threads.
  int64_t tokens = tile_tokens(c);
  while (tokens > 32 && c.rows / tokens * c.kv_heads < 4 * pool.size()) tokens /= 2;
  space.tiles.clear();
  for (const auto& run : space.runs) {
    if (run.rows <= kSpanRows || c.one_order) {
      for (int64_t r = 0; r < run.rows; r += kSpanRows)
        spans(c, {run.row + r, std::min(kSpanRows, run.rows - r)}, kernels, pool, space);
      continue;
    }
    for (int64_t r = 0; r < run.rows; r += tokens) space.tiles.push_back({run.row + r, std::min(tokens, run.rows - r)});
  }
  // The costly ones (many keys) first, so that the last task of a thread is short.
  std::stable_sort(space.tiles.begin(), space.tiles.end(),
                   [&](const auto& a, const auto& b) { return c.positions[a.row] > c.positions[b.row]; });
  const int64_t tiles = static_cast<int64_t>(space.tiles.size());
  if (tiles == 0) return;
  pool.run(tiles * c.kv_heads, [&](int64_t task, int worker) {
    const auto& tile = space.tiles[static_cast<size_t>(task / c.kv_heads)];
    float* work = sized(space.work[static_cast<size_t>(worker)], tile_work(c));
    kernels.attention.tile(c, tile.row, tile.rows, task % c.kv_heads, work);
  });
}

}  // namespace saragossa::cpu
