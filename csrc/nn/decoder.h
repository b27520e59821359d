#pragma once
// A dense decoder over the encoder: it knows ops and shapes, no backend and no model's name.

#include <vector>

#include "nn/layer.h"
#include "state/kv_cache.h"

namespace saragossa {

class Decoder {
 public:
  Decoder(WeightLoader& weights, DecoderSpec spec, Device& device);

  /// Runs the batch through the layers; its keys and values go into the cache.
  /// rows: i32 [R], the batch rows whose logits are wanted; the result is f32 [R, vocab].
  /// Without rows nothing beyond the cache is needed, and nothing more is computed; the result is empty.
  /// hidden, for diagnosis: f32 [R, hidden] of the wanted rows after each layer, one tensor a layer.
  Tensor forward(CommandEncoder& enc, const Batch& batch, const KvCache& cache, const Tensor& rows,
                 std::vector<Tensor>* hidden = nullptr) const;

  const DecoderSpec& spec() const { return spec_; }
  std::vector<KvLayerSpec> kv_layers() const;

 private:
  DecoderSpec spec_;
  Weight embed_, head_;
  Tensor norm_;
  std::vector<DecoderLayer> layers_;
  std::vector<Rope> ropes_;
};

}  // namespace saragossa
