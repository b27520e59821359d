#include "nn/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace saragossa {

std::vector<Rope> upload_ropes(const DecoderSpec& spec, Device& device) {
  std::vector<Rope> out;
  for (const RopeSpec& rope : spec.ropes) {
    const auto n = static_cast<int64_t>(rope.inv_freq.size());
    require(2 * n == rope.dims, "rope: ", n, " frequencies for ", rope.dims, " channels");
    const Tensor table = device.tensor(DType::f32, {n});
    std::copy(rope.inv_freq.begin(), rope.inv_freq.end(), host_data<float>(table));
    out.push_back({table, rope.attention_factor});
  }
  return out;
}

Decoder::Decoder(WeightLoader& weights, DecoderSpec spec, Device& device) : spec_(std::move(spec)) {
  embed_ = weights.matrix("embed", spec_.vocab, spec_.hidden);
  head_ = spec_.tied ? embed_ : weights.matrix("head", spec_.vocab, spec_.hidden);
  norm_ = weights.vector("norm", spec_.hidden);
  ropes_ = upload_ropes(spec_, device);
  layers_.reserve(spec_.layers.size());
  for (size_t i = 0; i < spec_.layers.size(); ++i) {
    const LayerSpec& layer = spec_.layers[i];
    layers_.emplace_back(weights, spec_, layer, "layers." + std::to_string(i) + ".");
    if (layer.delta || !layer.attention->kv_from) last_stored_ = i;
  }
  if (!spec_.mtp.empty()) mtp_.emplace(weights, spec_);
  if (spec_.block) {
    require(!mtp_, "decoder: two heads for drafts");
    block_.emplace(weights, spec_);
    last_stored_ = std::max(last_stored_, *std::max_element(spec_.block->taps.begin(), spec_.block->taps.end()) + 1);
  }
  if (spec_.per_layer_vocab == 0) return;
  const int64_t width = spec_.layers[0].per_layer_input;
  const int64_t all = width * static_cast<int64_t>(spec_.layers.size());
  per_layer_embed_ = weights.matrix("per_layer_embed", spec_.per_layer_vocab, all);
  per_layer_proj_ = weights.matrix("per_layer_model_proj", all, spec_.hidden);
  per_layer_norm_ = weights.vector("per_layer_model_norm", width);
}

std::vector<CacheLayer> Decoder::cache_layers() const {
  std::vector<CacheLayer> out;
  const auto add = [&](const LayerSpec& layer) {
    CacheLayer& to = out.emplace_back();
    if (layer.delta) {
      to.recurrent = {layer.delta->heads, layer.delta->conv_width};
    } else if (layer.attention->kv_from) {
      to.kv_from = layer.attention->kv_from;
    } else {
      to.kv = {layer.attention->kv_heads, layer.attention->head_dim};
      to.window = layer.attention->window;
    }
  };
  for (const LayerSpec& layer : spec_.layers) add(layer);
  for (const LayerSpec& layer : spec_.mtp) add(layer);
  if (spec_.block)
    for (const LayerSpec& layer : spec_.block->layers) add(layer);
  return out;
}

Tensor Decoder::per_layer_inputs(CommandEncoder& enc, const Tensor& x, const Tensor& ids) const {
  if (spec_.per_layer_vocab == 0) return {};
  const int64_t rows = x.shape[0], width = spec_.layers[0].per_layer_input;
  const auto layers = static_cast<int64_t>(layers_.size());
  const Tensor embedded = enc.scratch(DType::f32, {rows, layers * width});
  const Tensor projected = enc.scratch(DType::f32, {rows, layers * width});
  const Tensor out = enc.scratch(DType::f32, {layers, rows, width});
  enc.embed(embedded, per_layer_embed_, ids, std::sqrt(static_cast<float>(width)));
  enc.linear(projected, x, per_layer_proj_);
  // The projection is scaled by hidden^-0.5 in front of a norm: that leaves a factor of eps.
  enc.per_layer_inputs(out, projected, embedded, per_layer_norm_, spec_.norm_eps * static_cast<float>(spec_.hidden));
  return out;
}

/// One forward on its way from layer to layer.
struct Decoder::Pass {
  CommandEncoder& enc;
  std::span<const Batch> batches;
  const ModelCache& cache;
  const Tensor& rows;
  std::vector<Tensor>* trace;
  Tensor x;  // f32 [T, hidden], behind the last layer [R, hidden]
  LayerScratch s;
  Tensor inputs;  // f32 [layers, T, width] or none
  Tensor tapped;  // f32 [taps * T, hidden] or none: states that a block drafter reads

  int64_t tokens() const { return batches.front().tokens(); }
  Tensor mixed(const DecoderLayer& layer) const { return rows_view(s.mixed, tokens(), layer.spec().mixed_width()); }
  /// The layer's own input, f32 [T, width] or none.
  Tensor input(size_t layer) const {
    if (!inputs) return {};
    return inputs.slice(static_cast<int64_t>(layer), 1).reshape({inputs.shape[1], inputs.shape[2]});
  }
  void tap(const std::vector<size_t>& taps, size_t layer) const {
    for (size_t i = 0; tapped && i < taps.size(); ++i)
      if (taps[i] == layer) enc.copy(tapped.slice(static_cast<int64_t>(i) * tokens(), tokens()), x);
  }
  void keep_trace() const {
    if (!trace || !rows) return;
    const Tensor kept = enc.device().tensor(DType::f32, {rows.shape[0], x.shape[1]});
    if (x.shape[0] == tokens())
      enc.gather_rows(kept, x, rows);
    else
      enc.copy(kept, x);  // rows were gathered already
    trace->push_back(kept);
  }
};

void Decoder::mix(const Pass& p, size_t i, bool store_only) const {
  const DecoderLayer& layer = layers_[i];
  const Attention* attention = layer.attention();
  if (!attention) return layer.delta()->mix(p.enc, p.cache.recurrent(i), p.batches.front(), p.s);
  const KvPlace place = p.cache.kv_place(i);
  const KvLayer& kv = p.cache.kv(place);
  const Batch& batch = p.batches[place.group];
  attention->project(p.enc, ropes_[layer.spec().attention->rope], kv, batch, p.s);
  if (!store_only) attention->attend(p.enc, kv, batch, p.s);
}

Decoder::Output Decoder::finish_last(Pass& p, bool every_normed) const {
  const DecoderLayer& layer = layers_.back();
  const Tensor x = p.x, mixed = p.mixed(layer), input = p.input(layers_.size() - 1);
  Output out;
  if (p.rows) {
    p.x = gathered(p.enc, x, p.rows);
    const Tensor wanted = gathered(p.enc, mixed, p.rows);
    layer.finish(p.enc, p.x, wanted, norm_, input ? gathered(p.enc, input, p.rows) : Tensor(), p.s);
    p.keep_trace();
  }
  if (!every_normed) return out;
  if (p.rows) {
    out.normed = p.enc.scratch(DType::f32, {p.rows.shape[0], spec_.hidden});
    p.enc.copy(out.normed, rows_view(p.s.normed, p.rows.shape[0], spec_.hidden));
  }
  layer.finish(p.enc, x, mixed, norm_, input, p.s);
  out.every = rows_view(p.s.normed, p.tokens(), spec_.hidden);
  return out;
}

Decoder::Output Decoder::forward(CommandEncoder& enc, std::span<const Batch> batches, const ModelCache& cache,
                                 const Tensor& rows, bool every, std::vector<Tensor>* trace) const {
  require(batches.size() == cache.groups(), "decoder: ", batches.size(), " batches for ", cache.groups(), " groups");
  const Tensor& ids = batches.front().ids;
  const int64_t tokens = ids.shape[0];
  Pass p{enc,
         batches,
         cache,
         rows,
         trace,
         enc.scratch(DType::f32, {tokens, spec_.hidden}),
         LayerScratch(enc, spec_, spec_.layers, tokens),
         {},
         {}};
  enc.embed(p.x, embed_, ids, spec_.embed_scale);
  p.inputs = per_layer_inputs(enc, p.x, ids);
  const bool every_normed = every && mtp_;
  const std::vector<size_t> taps = every && block_ ? spec_.block->taps : std::vector<size_t>();
  if (!taps.empty()) p.tapped = enc.scratch(DType::f32, {static_cast<int64_t>(taps.size()) * tokens, spec_.hidden});

  Output out;
  layers_.front().begin(enc, p.x, p.s);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const bool last = i + 1 == layers_.size(), enough = !rows && !every_normed && i == last_stored_;
    mix(p, i, enough);
    if (enough) break;
    if (last && (!rows || rows.shape[0] != tokens)) {
      out = finish_last(p, every_normed);
      break;
    }
    layers_[i].finish(enc, p.x, p.mixed(layers_[i]), last ? norm_ : layers_[i + 1].input_norm(), p.input(i), p.s);
    p.keep_trace();
    p.tap(taps, i);
  }
  if (p.tapped) out.every = side_by_side(enc, p.tapped, static_cast<int64_t>(taps.size()));
  if (!rows) return out;

  if (!out.normed) out.normed = rows_view(p.s.normed, p.x.shape[0], spec_.hidden);
  if (every_normed && !out.every) out.every = out.normed;
  out.logits = logits(enc, out.normed);
  out.hidden = p.x;
  return out;
}

Tensor side_by_side(CommandEncoder& enc, const Tensor& stacked, int64_t parts) {
  const int64_t rows = stacked.shape[0] / parts, width = stacked.shape[1];
  if (rows == 1 || parts == 1) return stacked.reshape({rows, parts * width});
  const Tensor order = enc.device().tensor(DType::i32, {parts * rows});
  int32_t* to = host_data<int32_t>(order);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < parts; ++i) *to++ = static_cast<int32_t>(i * rows + r);
  const Tensor out = enc.scratch(DType::f32, stacked.shape);
  enc.gather_rows(out, stacked, order);
  return out.reshape({rows, parts * width});
}

Tensor Decoder::logits(CommandEncoder& enc, const Tensor& normed) const {
  const Tensor out = enc.scratch(DType::f32, {normed.shape[0], spec_.vocab});
  enc.linear(out, normed, head_);
  if (spec_.final_softcap > 0.0f) enc.softcap(out, spec_.final_softcap);
  return out;
}

}  // namespace saragossa
