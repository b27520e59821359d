#include "metal/launch.h"
#include "params/sample_kernels.h"

namespace saragossa::metal {
namespace {

constexpr Kernel kScan{"sample", "sample_scan"};
constexpr Kernel kDraw{"sample", "sample_draw"};
constexpr Kernel kFinish{"sample", "sample_finish"};
constexpr Kernel kCut{"sample_filter", "sample_cut"};

int64_t parts(int64_t n, int64_t size) { return (n + size - 1) / size; }

}  // namespace

void MetalEncoder::do_sample(const SampleArgs& a) {
  const int64_t rows = a.logits.shape[0], vocab = a.logits.shape[1];
  const int64_t chunks = parts(vocab, SG_SAMPLE_CHUNK), blocks = parts(vocab, SG_SAMPLE_BLOCK);
  require(blocks <= SG_SAMPLE_MAX_BLOCKS, "sample: a vocabulary of ", vocab, ", the Metal kernels take ",
          SG_SAMPLE_MAX_BLOCKS * SG_SAMPLE_BLOCK);
  const bool processes = a.counts || a.bias_ids || a.mask;
  const Constants constants{{a.bias_ids ? 1u : 0u, a.mask ? 1u : 0u, a.counts ? 1u : 0u, a.filtered ? 1u : 0u,
                             a.logprobs ? 1u : 0u, a.rows ? 1u : 0u},
                            6};
  const SampleShape shape{u32(vocab), u32(chunks), u32(blocks), a.bias_ids ? u32(a.bias_ids.shape[1]) : 0,
                          a.logprobs ? u32(a.logprobs.shape[1] - 1) : 0};
  const Tensor partials = scratch(DType::u8, {rows, chunks * static_cast<int64_t>(sizeof(SamplePartial))});
  Tensor processed = a.logits, block_max, raw_block_max;
  if (a.filtered && processes) processed = scratch(DType::f32, {rows, vocab});
  if (a.filtered) block_max = scratch(DType::f32, {rows, blocks});
  if (a.logprobs) raw_block_max = scratch(DType::f32, {rows, blocks});

  Launch(*this, kScan, constants)
      .buffer(SG_SAMPLE_LOGITS, a.logits)
      .buffer(SG_SAMPLE_PARAMS, a.params)
      .buffer(SG_SAMPLE_COUNTS, a.counts)
      .buffer(SG_SAMPLE_BIAS_IDS, a.bias_ids)
      .buffer(SG_SAMPLE_BIAS, a.bias)
      .buffer(SG_SAMPLE_MASK, a.mask)
      .buffer(SG_SAMPLE_PARTIALS, partials)
      .buffer(SG_SAMPLE_PROCESSED, a.filtered && processes ? processed : Tensor{})
      .buffer(SG_SAMPLE_BLOCK_MAX, block_max)
      .buffer(SG_SAMPLE_RAW_BLOCK_MAX, raw_block_max)
      .buffer(SG_SAMPLE_ROWS, a.rows)
      .params(SG_SAMPLE_SHAPE, shape)
      .groups(chunks, rows, 1, SG_SAMPLE_THREADS);
  barrier();
  if (a.filtered) {
    const Tensor cuts = scratch(DType::u8, {rows, static_cast<int64_t>(sizeof(SampleCut))});
    Launch(*this, kCut, {{a.rows ? 1u : 0u}, 1})
        .buffer(SG_SAMPLE_PROCESSED, processed)
        .buffer(SG_SAMPLE_PARAMS, a.params)
        .buffer(SG_SAMPLE_BLOCK_MAX, block_max)
        .buffer(SG_SAMPLE_PARTIALS, partials)
        .buffer(SG_SAMPLE_LIST, scratch(DType::u32, {rows, vocab}))
        .buffer(SG_SAMPLE_CUTS, cuts)
        .buffer(SG_SAMPLE_ROWS, a.rows)
        .params(SG_SAMPLE_SHAPE, shape)
        .groups(rows, 1, 1, SG_SAMPLE_CUT_THREADS);
    barrier();
    Launch(*this, kDraw, constants)
        .buffer(SG_SAMPLE_PROCESSED, processed)
        .buffer(SG_SAMPLE_PARAMS, a.params)
        .buffer(SG_SAMPLE_BLOCK_MAX, block_max)
        .buffer(SG_SAMPLE_CUTS, cuts)
        .buffer(SG_SAMPLE_PARTIALS, partials)
        .buffer(SG_SAMPLE_ROWS, a.rows)
        .params(SG_SAMPLE_SHAPE, shape)
        .groups(chunks, rows, 1, SG_SAMPLE_THREADS);
    barrier();
  }
  Launch(*this, kFinish, constants)
      .buffer(SG_SAMPLE_PARTIALS, partials)
      .buffer(SG_SAMPLE_PARAMS, a.params)
      .buffer(SG_SAMPLE_LOGITS, a.logits)
      .buffer(SG_SAMPLE_RAW_BLOCK_MAX, raw_block_max)
      .buffer(SG_SAMPLE_COUNTS, a.counts)
      .buffer(SG_SAMPLE_IDS, a.ids)
      .buffer(SG_SAMPLE_LOGPROBS, a.logprobs)
      .buffer(SG_SAMPLE_LOGPROB_IDS, a.logprob_ids)
      .buffer(SG_SAMPLE_ROWS, a.rows)
      .params(SG_SAMPLE_SHAPE, shape)
      .groups(rows, 1, 1, a.logprobs ? SG_SAMPLE_THREADS : 32);
}

}  // namespace saragossa::metal
