#include "params/attention.h"

#include <algorithm>
#include <vector>

#include "metal/kv_launch.h"

namespace saragossa::metal {
namespace {

constexpr Kernel kDecode{"attention_decode", "attention_decode"};
constexpr Kernel kMerge{"attention_decode", "attention_merge"};
constexpr Kernel kPrefill{"attention_prefill", "attention_prefill"};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Most keys that a row of the batch can see.
int64_t most_keys(const KvLayer& kv, const Batch& batch, int64_t window) {
  int64_t keys = batch.block_table.shape[1] * kv.block_tokens();
  if (batch.max_keys > 0) keys = std::min(keys, batch.max_keys);
  if (window > 0) keys = std::min(keys, window);
  return std::max<int64_t>(keys, 1);
}

/// How decode attention is cut: splits over the keys, passes over the query heads of a kv head.
struct DecodePlan {
  int64_t heads, head_dim, kv_heads, rows;
  int64_t split, splits;
  int64_t passes, pass_heads;
  int64_t padded_heads;  // of a pass, as the kernel is made for

  DecodePlan(const Tensor& q, const KvLayer& kv, int64_t keys, const Tuning& tuning)
      : heads(q.shape[1]), head_dim(q.shape[2]), kv_heads(kv.k.shape[1]), rows(q.shape[0]) {
    // Queries of large heads leave less room for scores.
    split = std::min<int64_t>(head_dim > 256 ? tuning.attention_split / 2 : tuning.attention_split, SG_MAX_SPLIT);
    splits = ceil_div(keys, split);
    passes = ceil_div(heads / kv_heads, SG_DECODE_HEADS);
    pass_heads = ceil_div(heads / kv_heads, passes);
    const bool wide = head_dim % 8 == 0;
    padded_heads = !wide || pass_heads > 4 ? 8 : pass_heads > 2 ? 4 : pass_heads;
  }
  bool one() const { return splits == 1; }
};

/// Threadgroup memory of a pass, in floats: queries, scores, statistics; then the sums of simdgroups, or in their
/// place.
struct DecodeMemory {
  int64_t sums = 0;   // where they begin
  int64_t round = 1;  // heads of a round
  int64_t floats = 0;

  explicit DecodeMemory(const DecodePlan& plan) {
    constexpr int64_t kMost = (32 * 1024 - 4 * SG_MAX_SPLIT) / 4;
    const int64_t piece = plan.head_dim % 8 == 0 ? 8 : plan.head_dim % 4 == 0 ? 4 : 1;
    const int64_t scores = plan.padded_heads * (plan.head_dim + plan.split);
    const int64_t one = SG_DECODE_SIMDGROUPS * std::min<int64_t>(plan.head_dim, 32 * piece);
    // Statistics stand behind the scores. Sums may overwrite scores where no further part of the channels needs them.
    const int64_t stats = 2 * plan.padded_heads;
    if (plan.head_dim <= 32 * piece && scores >= one) {
      round = std::min(plan.pass_heads, scores / one);
      floats = scores + stats;
    } else {
      sums = scores + stats;
      floats = sums + one;
    }
    require(floats <= kMost, "attention: heads of ", plan.head_dim, " channels need ", floats * 4,
            " bytes of threadgroup memory, a GPU has ", kMost * 4);
  }
};

/// The operands of one op.
struct Call {
  const Tensor& y;
  const Tensor& q;
  const Tensor& gate;  // or none
  const KvLayer& kv;
  const Batch& batch;
  const AttentionParams& params;
};

void bind(Launch& launch, const Call& c, const Tensor& y) {
  launch.buffer(SG_ATTENTION_Y, y)
      .buffer(SG_ATTENTION_Q, c.q)
      .buffer(SG_ATTENTION_K, c.kv.k)
      .buffer(SG_ATTENTION_V, c.kv.v)
      .buffer(SG_ATTENTION_K_SCALES, scales_of(c.kv.k, c.kv.k_scales))
      .buffer(SG_ATTENTION_V_SCALES, scales_of(c.kv.v, c.kv.v_scales))
      .buffer(SG_ATTENTION_GATE, c.gate ? c.gate : c.q)  // not read where there is none
      .buffer(SG_ATTENTION_POSITIONS, c.batch.positions)
      .buffer(SG_ATTENTION_SEQUENCE, c.batch.sequence)
      .buffer(SG_ATTENTION_BLOCK_TABLE, c.batch.block_table);
}

/// Consecutive rows that one kernel takes.
struct Segment {
  int64_t first, rows;
  bool prefill;  // by the kernel whose rows share each key that is read
};

/// By the batch's runs: long ones and short ones have kernels of their own. A batch that does not tell its runs is
/// judged by how many rows a sequence of the table has on average.
std::vector<Segment> segments_of(const Call& c, const Context& context) {
  const int64_t rows = c.q.shape[0], few = context.tuning.attention_rows;
  if (!context.switches.metal_simdgroup_attention || !context.gpu.simdgroup_matrix ||
      c.q.shape[2] > SG_PREFILL_HEAD_DIM)
    return {{0, rows, false}};
  if (c.batch.runs.empty()) return {{0, rows, rows > few * c.batch.block_table.shape[0]}};
  std::vector<Segment> out;
  int64_t first = 0;
  for (const int64_t run : c.batch.runs) {
    if (!out.empty() && out.back().prefill == (run > few))
      out.back().rows += run;
    else
      out.push_back({first, run, run > few});
    first += run;
  }
  return out;
}

void prefill(MetalEncoder& encoder, const Call& c) {
  const int64_t rows = c.q.shape[0], heads = c.q.shape[1], head_dim = c.q.shape[2], group = heads / c.kv.k.shape[1];
  // As the kernel is made: matrices of a head, keys of a tile.
  const bool whole = head_dim <= SG_PREFILL_WHOLE_DIM;
  const int64_t matrices = head_dim <= 64 ? 8 : head_dim <= 96 ? 12 : head_dim <= 128 ? 16 : whole ? 32 : 64;
  const int64_t keys = matrices == 64 ? 8 : matrices == 32 ? 16 : 32;
  const PrefillParams p{kv_params(c.kv, c.batch), u32(rows),      u32(heads),
                        u32(c.params.window),     c.params.scale, c.params.softcap};
  Launch launch(encoder, kPrefill,
                {{u32(head_dim), u32(group), kv_value(c.kv), u32(c.kv.block_tokens()), c.gate ? 1u : 0u}, 5});
  bind(launch, c, c.y);
  launch.params(SG_ATTENTION_PARAMS, p)
      .threadgroup_memory(SG_ATTENTION_SHARED, 4 * (keys * (8 * matrices + 4) + 4 * (8 * keys + 64)))
      .groups(ceil_div(rows * group, whole ? SG_PREFILL_ROWS : SG_PREFILL_ROWS_OF_HALVES), c.kv.k.shape[1], 1, 128);
}

void decode(MetalEncoder& encoder, const Call& c) {
  const Tuning& tuning = encoder.context().tuning;
  const DecodePlan plan(c.q, c.kv, most_keys(c.kv, c.batch, c.params.window), tuning);
  const DecodeMemory memory(plan);
  const DecodeParams p{kv_params(c.kv, c.batch), u32(plan.heads),   u32(plan.passes),
                       u32(plan.splits),         u32(memory.round), u32(memory.sums),
                       u32(c.params.window),     c.params.scale,    c.params.softcap};
  const Constants constants{{u32(plan.head_dim), u32(plan.pass_heads), kv_value(c.kv), u32(c.kv.block_tokens()),
                             u32(plan.split), plan.one() ? 1u : 0u, c.gate ? 1u : 0u},
                            7};
  const auto attend = [&](const Tensor& sums, const Tensor& stats) {
    Launch launch(encoder, kDecode, constants);
    bind(launch, c, sums);
    launch.buffer(SG_ATTENTION_STATS, stats)
        .params(SG_ATTENTION_PARAMS, p)
        .threadgroup_memory(SG_ATTENTION_SHARED, 4 * memory.floats)
        .groups(std::min(plan.splits, tuning.attention_splits), plan.kv_heads * plan.passes, plan.rows,
                32 * SG_DECODE_SIMDGROUPS);
  };
  if (plan.one()) return attend(c.y, c.y);
  const auto partial = [&](int64_t width) { return Shape{plan.rows, plan.heads, plan.splits, width}; };
  const OpScratch scratch(encoder, {{DType::f32, partial(plan.head_dim)}, {DType::f32, partial(2)}});
  const Tensor &sums = scratch[0], &stats = scratch[1];
  attend(sums, stats);
  encoder.barrier();
  Launch(encoder, kMerge, constants)
      .buffer(SG_MERGE_Y, c.y)
      .buffer(SG_MERGE_SUMS, sums)
      .buffer(SG_MERGE_STATS, stats)
      .buffer(SG_MERGE_POSITIONS, c.batch.positions)
      .buffer(SG_MERGE_GATE, c.gate ? c.gate : sums)  // not read where there is none
      .params(SG_MERGE_PARAMS, p)
      .groups(plan.heads, plan.rows, 1, ceil_div(plan.head_dim, 32) * 32);
}

/// Rows [first, first + rows) of the op.
void run(MetalEncoder& encoder, const Call& c, const Segment& part) {
  const auto launch = part.prefill ? &prefill : &decode;
  if (part.rows == c.q.shape[0]) return launch(encoder, c);
  Batch batch = c.batch;
  batch.positions = c.batch.positions.slice(part.first, part.rows);
  batch.sequence = c.batch.sequence.slice(part.first, part.rows);
  const Tensor y = c.y.slice(part.first, part.rows), q = c.q.slice(part.first, part.rows);
  const Tensor gate = c.gate ? c.gate.slice(part.first, part.rows) : Tensor{};
  launch(encoder, {y, q, gate, c.kv, batch, c.params});
}

/// In parts that bound the work of a command buffer.
void run(MetalEncoder& encoder, const Call& c) {
  const Context& context = encoder.context();
  const bool bounded = c.q.shape[0] > context.tuning.attention_rows;
  // The most that a row may cost: which keys it sees only the device knows.
  const int64_t work_of_row = 2 * c.q.shape[1] * c.q.shape[2] * most_keys(c.kv, c.batch, c.params.window);
  for (const Segment& segment : segments_of(c, context)) {
    const int64_t most = bounded ? encoder.rows_in_bound(work_of_row) : segment.rows;
    const int64_t end = segment.first + segment.rows;
    for (int64_t first = segment.first; first < end; first += most) {
      const Segment part{first, std::min(most, end - first), segment.prefill};
      if (bounded) encoder.work(part.rows * work_of_row);
      run(encoder, c, part);
    }
  }
}

}  // namespace

void MetalEncoder::do_attention(const Tensor& y, const Tensor& q, const KvLayer& kv, const Batch& batch,
                                const AttentionParams& params) {
  run(*this, {y, q, {}, kv, batch, params});
}

void MetalEncoder::do_attention_gated(const Tensor& y, const Tensor& q, const Tensor& gate, const KvLayer& kv,
                                      const Batch& batch, const AttentionParams& params) {
  run(*this, {y, q, gate, kv, batch, params});
}

}  // namespace saragossa::metal
