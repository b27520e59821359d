#include "nn/mtp.h"

#include <string>

#include "nn/decoder.h"

namespace saragossa {

MtpHead::MtpHead(WeightLoader& weights, const DecoderSpec& spec) {
  fc_ = weights.matrix("mtp.fc", spec.hidden, 2 * spec.hidden);
  embed_norm_ = weights.vector("mtp.embed_norm", spec.hidden);
  hidden_norm_ = weights.vector("mtp.hidden_norm", spec.hidden);
  norm_ = weights.vector("mtp.norm", spec.hidden);
  for (size_t i = 0; i < spec.mtp.size(); ++i) {
    require(spec.mtp[i].attention && !spec.mtp[i].attention->kv_from, "mtp: layer ", i, " has no keys of its own");
    layers_.emplace_back(weights, spec, spec.mtp[i], "mtp.layers." + std::to_string(i) + ".");
  }
}

Tensor MtpHead::join(CommandEncoder& enc, const Decoder& decoder, const Tensor& ids, const Tensor& states) const {
  const int64_t rows = ids.shape[0], hidden = decoder.spec().hidden;
  const float eps = decoder.spec().norm_eps;
  const Tensor both = enc.scratch(DType::f32, {2 * rows, hidden});
  const Tensor embedded = both.slice(0, rows);
  enc.embed(embedded, decoder.embedding(), ids, decoder.spec().embed_scale);
  enc.rms_norm(embedded, embedded, embed_norm_, eps);
  enc.rms_norm(both.slice(rows, rows), states, hidden_norm_, eps);
  const Tensor x = enc.scratch(DType::f32, {rows, hidden});
  enc.linear(x, side_by_side(enc, both, 2), fc_);
  return x;
}

MtpHead::Output MtpHead::forward(CommandEncoder& enc, const Decoder& decoder, std::span<const Batch> batches,
                                 const ModelCache& cache, const Tensor& states, const Tensor& rows) const {
  const DecoderSpec& spec = decoder.spec();
  const int64_t tokens = batches.front().tokens();
  Tensor x = join(enc, decoder, batches.front().ids, states);
  const LayerScratch s(enc, spec, spec.mtp, tokens);
  layers_.front().begin(enc, x, s);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const DecoderLayer& layer = layers_[i];
    const bool last = i + 1 == layers_.size();
    const KvPlace place = cache.kv_place(spec.layers.size() + i);
    const Batch& batch = batches[place.group];
    layer.attention()->project(enc, decoder.rope(layer.spec().attention->rope), cache.kv(place), batch, s);
    if (last && !rows) return {};
    layer.attention()->attend(enc, cache.kv(place), batch, s);
    Tensor mixed = rows_view(s.mixed, tokens, layer.spec().mixed_width());
    if (last && rows.shape[0] < tokens) {
      x = gathered(enc, x, rows);
      mixed = gathered(enc, mixed, rows);
    }
    layer.finish(enc, x, mixed, last ? norm_ : layers_[i + 1].input_norm(), {}, s);
  }
  const Tensor normed = rows_view(s.normed, x.shape[0], spec.hidden);
  return {decoder.logits(enc, normed), normed};
}

}  // namespace saragossa
