#pragma once
// A block drafter (DFlash, arXiv 2602.06036): several drafts in one pass of a few layers.
//
// The states that some of the decoder's layers leave of a token, fused, are the drafter's keys and values of that
// token, in the sequence's own blocks. A block is the drawn token and masks; each of its rows sees all tokens and the
// whole block, and the row of a mask says which token stands there. Embedding and head are the decoder's.

#include <span>
#include <vector>

#include "nn/layer.h"
#include "state/model_cache.h"

namespace saragossa {

class Decoder;

class BlockHead {
 public:
  BlockHead(WeightLoader& weights, const DecoderSpec& spec);

  /// Keys and values of tokens: one row each of the states f32 [T, taps * hidden]. batches: as of Decoder::forward.
  void store(CommandEncoder& enc, const Decoder& decoder, std::span<const Batch> batches, const ModelCache& cache,
             const Tensor& states) const;
  /// Logits f32 [rows - 1, vocab] of a block's masks. batches: its rows as they stand; seeing: as rows that see all of
  /// it.
  Tensor draft(CommandEncoder& enc, const Decoder& decoder, std::span<const Batch> batches,
               std::span<const Batch> seeing, const ModelCache& cache) const;

 private:
  size_t first_;  // of the cache's layers
  Weight fc_;
  Tensor hidden_norm_, norm_;
  std::vector<DecoderLayer> layers_;
};

}  // namespace saragossa
