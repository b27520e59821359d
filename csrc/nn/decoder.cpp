#include "nn/decoder.h"

#include <algorithm>
#include <utility>

namespace saragossa {

Decoder::Decoder(WeightLoader& weights, DecoderSpec spec, Device& device) : spec_(std::move(spec)) {
  embed_ = weights.matrix("embed", spec_.vocab, spec_.hidden);
  head_ = spec_.tied ? embed_ : weights.matrix("head", spec_.vocab, spec_.hidden);
  norm_ = weights.vector("norm", spec_.hidden);
  for (const RopeSpec& rope : spec_.ropes) {
    const auto n = static_cast<int64_t>(rope.inv_freq.size());
    require(2 * n == rope.dims, "rope: ", n, " frequencies for ", rope.dims, " channels");
    const Tensor table = device.tensor(DType::f32, {n});
    std::copy(rope.inv_freq.begin(), rope.inv_freq.end(), host_data<float>(table));
    ropes_.push_back({table, rope.attention_factor});
  }
  layers_.reserve(spec_.layers.size());
  for (size_t i = 0; i < spec_.layers.size(); ++i) layers_.emplace_back(weights, spec_, i);
}

std::vector<KvLayerSpec> Decoder::kv_layers() const {
  std::vector<KvLayerSpec> out;
  for (const LayerSpec& layer : spec_.layers) out.push_back({layer.attention.kv_heads, layer.attention.head_dim});
  return out;
}

Tensor Decoder::forward(CommandEncoder& enc, const Batch& batch, const KvCache& cache, const Tensor& rows,
                        std::vector<Tensor>* hidden) const {
  const int64_t tokens = batch.tokens();
  Tensor x = enc.scratch(DType::f32, {tokens, spec_.hidden});
  const LayerScratch s(enc, spec_, tokens);
  enc.embed(x, embed_, batch.ids, spec_.embed_scale);

  layers_.front().begin(enc, x, s);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const DecoderLayer& layer = layers_[i];
    const KvLayer& kv = cache.layer(i);
    const bool last = i + 1 == layers_.size();
    layer.project(enc, ropes_[layer.spec().attention.rope], kv, batch, s);
    if (last && !rows) return {};
    layer.attend(enc, kv, batch, s);
    const int64_t width = layer.spec().attention.heads * layer.spec().attention.head_dim;
    Tensor attended = s.attended.slice(0, tokens * width).reshape({tokens, width});
    if (last && rows.shape[0] < tokens) {
      // Only the wanted rows go on from here.
      const Tensor wanted_x = enc.scratch(DType::f32, {rows.shape[0], spec_.hidden});
      const Tensor wanted = enc.scratch(DType::f32, {rows.shape[0], width});
      enc.gather_rows(wanted_x, x, rows);
      enc.gather_rows(wanted, attended, rows);
      x = wanted_x;
      attended = wanted;
    }
    layer.finish(enc, x, attended, last ? norm_ : layers_[i + 1].input_norm(), s);
    if (hidden && rows) {
      const Tensor kept = enc.device().tensor(DType::f32, {rows.shape[0], spec_.hidden});
      if (x.shape[0] == tokens) {
        enc.gather_rows(kept, x, rows);
      } else {
        enc.add(kept, x, enc.device().tensor(DType::f32, x.shape));  // rows were gathered already: a plain copy
      }
      hidden->push_back(kept);
    }
  }

  const Tensor normed = s.normed.slice(0, x.shape[0] * spec_.hidden).reshape({x.shape[0], spec_.hidden});
  const Tensor logits = enc.scratch(DType::f32, {x.shape[0], spec_.vocab});
  enc.linear(logits, normed, head_);
  if (spec_.final_softcap > 0.0f) enc.softcap(logits, spec_.final_softcap);
  return logits;
}

}  // namespace saragossa
