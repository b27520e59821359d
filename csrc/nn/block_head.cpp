#include "nn/block_head.h"

#include <string>

#include "nn/decoder.h"

namespace saragossa {

BlockHead::BlockHead(WeightLoader& weights, const DecoderSpec& spec) : first_(spec.layers.size() + spec.mtp.size()) {
  const BlockSpec& block = *spec.block;
  require(block.size >= 2 && !block.taps.empty() && !block.layers.empty(), "block drafter: an empty block");
  for (const size_t tap : block.taps)
    require(tap + 1 < spec.layers.size(), "block drafter: states behind layer ", tap, " of ", spec.layers.size());
  fc_ = weights.matrix("block.fc", spec.hidden, static_cast<int64_t>(block.taps.size()) * spec.hidden);
  hidden_norm_ = weights.vector("block.hidden_norm", spec.hidden);
  norm_ = weights.vector("block.norm", spec.hidden);
  for (size_t i = 0; i < block.layers.size(); ++i) {
    require(block.layers[i].attention.has_value(), "block drafter: layer ", i, " does not attend");
    layers_.emplace_back(weights, spec, block.layers[i], "block.layers." + std::to_string(i) + ".");
  }
}

void BlockHead::store(CommandEncoder& enc, const Decoder& decoder, std::span<const Batch> batches,
                      const ModelCache& cache, const Tensor& states) const {
  const DecoderSpec& spec = decoder.spec();
  const int64_t rows = states.shape[0];
  const LayerScratch s(enc, spec, spec.block->layers, rows);
  const Tensor fused = enc.scratch(DType::f32, {rows, spec.hidden});
  enc.linear(fused, states, fc_);
  enc.rms_norm(fused, fused, hidden_norm_, spec.norm_eps);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const KvPlace place = cache.kv_place(first_ + i);
    layers_[i].attention()->store(enc, decoder.rope(layers_[i].spec().attention->rope), cache.kv(place),
                                  batches[place.group], fused, s);
  }
}

Tensor BlockHead::draft(CommandEncoder& enc, const Decoder& decoder, std::span<const Batch> batches,
                        std::span<const Batch> seeing, const ModelCache& cache) const {
  const DecoderSpec& spec = decoder.spec();
  const int64_t rows = batches.front().tokens();
  const LayerScratch s(enc, spec, spec.block->layers, rows);
  const Tensor x = enc.scratch(DType::f32, {rows, spec.hidden});
  enc.embed(x, decoder.embedding(), batches.front().ids, spec.embed_scale);
  layers_.front().begin(enc, x, s);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const DecoderLayer& layer = layers_[i];
    const KvPlace place = cache.kv_place(first_ + i);
    layer.attention()->project(enc, decoder.rope(layer.spec().attention->rope), cache.kv(place), batches[place.group],
                               s);
    layer.attention()->attend(enc, cache.kv(place), seeing[place.group], s);
    layer.finish(enc, x, rows_view(s.mixed, rows, layer.spec().mixed_width()),
                 i + 1 == layers_.size() ? norm_ : layers_[i + 1].input_norm(), {}, s);
  }
  return decoder.logits(enc, rows_view(s.normed, rows, spec.hidden).slice(1, rows - 1));
}

}  // namespace saragossa
