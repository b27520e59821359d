#pragma once
// The head for multi-token prediction: from the state at a position and the token behind it, the token after that.
//
// x = fc([norm(embedding of the next token), norm(state)]), then layers with keys and values of their own, a norm, and
// the decoder's head. A state is what the decoder's head reads: behind the final norm. The pair of the state at
// position t and token t + 1 stands at position t, so its keys lie in the sequence's own blocks.

#include <span>
#include <vector>

#include "nn/layer.h"
#include "state/model_cache.h"

namespace saragossa {

class Decoder;

class MtpHead {
 public:
  MtpHead(WeightLoader& weights, const DecoderSpec& spec);

  struct Output {
    Tensor logits;  // f32 [R, vocab]
    Tensor normed;  // f32 [R, hidden]: takes the state's place in the next pair, to draft further
  };

  /// One row a pair. batches: as of Decoder::forward, ids are the next tokens, positions those of the states.
  /// states: f32 [T, hidden]. rows: i32 [R], the pairs whose predictions are wanted; none: only keys and values.
  Output forward(CommandEncoder& enc, const Decoder& decoder, std::span<const Batch> batches, const ModelCache& cache,
                 const Tensor& states, const Tensor& rows) const;

 private:
  /// f32 [T, hidden]: what the first layer gets.
  Tensor join(CommandEncoder& enc, const Decoder& decoder, const Tensor& ids, const Tensor& states) const;

  Weight fc_;
  Tensor embed_norm_, hidden_norm_, norm_;
  std::vector<DecoderLayer> layers_;
};

}  // namespace saragossa
