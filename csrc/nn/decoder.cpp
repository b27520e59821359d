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

Decoder::Output Decoder::forward(CommandEncoder& enc, std::span<const Batch> batches, const ModelCache& cache,
                                 const Tensor& rows, bool every, std::vector<Tensor>* trace) const {
  require(batches.size() == cache.groups(), "decoder: ", batches.size(), " batches for ", cache.groups(), " groups");
  const Batch& first = batches.front();
  const int64_t tokens = first.tokens();
  Tensor x = enc.scratch(DType::f32, {tokens, spec_.hidden});
  const LayerScratch s(enc, spec_, spec_.layers, tokens);
  enc.embed(x, embed_, first.ids, spec_.embed_scale);
  const Tensor own = per_layer_inputs(enc, x, first.ids);

  Output out;
  const bool every_normed = every && mtp_;
  const std::vector<size_t> taps = every && block_ ? spec_.block->taps : std::vector<size_t>();
  Tensor tapped;
  if (!taps.empty()) tapped = enc.scratch(DType::f32, {static_cast<int64_t>(taps.size()) * tokens, spec_.hidden});
  const auto tap = [&](size_t i) {
    for (size_t at = 0; at < taps.size(); ++at)
      if (taps[at] == i) enc.copy(tapped.slice(static_cast<int64_t>(at) * tokens, tokens), x);
  };
  const auto keep_trace = [&](const Tensor& behind) {
    if (!trace || !rows) return;
    const Tensor kept = enc.device().tensor(DType::f32, {rows.shape[0], spec_.hidden});
    if (behind.shape[0] == tokens)
      enc.gather_rows(kept, behind, rows);
    else
      enc.copy(kept, behind);  // rows were gathered already
    trace->push_back(kept);
  };
  layers_.front().begin(enc, x, s);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const DecoderLayer& layer = layers_[i];
    const bool last = i + 1 == layers_.size(), enough = !rows && !every_normed && i == last_stored_;
    if (const Attention* attention = layer.attention()) {
      const KvPlace place = cache.kv_place(i);
      const KvLayer& kv = cache.kv(place);
      const Batch& batch = batches[place.group];
      attention->project(enc, ropes_[layer.spec().attention->rope], kv, batch, s);
      if (enough) break;
      attention->attend(enc, kv, batch, s);
    } else {
      layer.delta()->mix(enc, cache.recurrent(i), first, s);
      if (enough) break;
    }
    Tensor mixed = rows_view(s.mixed, tokens, layer.spec().mixed_width());
    Tensor layer_input;
    if (own) {
      const Shape& shape = own.shape;
      layer_input = own.slice(static_cast<int64_t>(i), 1).reshape({shape[1], shape[2]});
    }
    if (!last || (rows && rows.shape[0] == tokens)) {
      layer.finish(enc, x, mixed, last ? norm_ : layers_[i + 1].input_norm(), layer_input, s);
      keep_trace(x);
      tap(i);
      continue;
    }
    // Only the wanted rows go on from here; where all are wanted as states, these go first and alone.
    const Tensor all_x = x, all_mixed = mixed, all_input = layer_input;
    if (rows) {
      const auto wanted = [&](const Tensor& from) {
        const Tensor to = enc.scratch(DType::f32, {rows.shape[0], from.shape[1]});
        enc.gather_rows(to, from, rows);
        return to;
      };
      x = wanted(x);
      mixed = wanted(mixed);
      if (layer_input) layer_input = wanted(layer_input);
      layer.finish(enc, x, mixed, norm_, layer_input, s);
      keep_trace(x);
    }
    if (!every_normed) continue;
    if (rows) {
      out.normed = enc.scratch(DType::f32, {rows.shape[0], spec_.hidden});
      enc.copy(out.normed, rows_view(s.normed, rows.shape[0], spec_.hidden));
    }
    layer.finish(enc, all_x, all_mixed, norm_, all_input, s);
    out.every = rows_view(s.normed, tokens, spec_.hidden);
  }
  if (tapped) out.every = side_by_side(enc, tapped, static_cast<int64_t>(taps.size()));
  if (!rows) return out;

  if (!out.normed) out.normed = rows_view(s.normed, x.shape[0], spec_.hidden);
  if (every_normed && !out.every) out.every = out.normed;
  out.logits = logits(enc, out.normed);
  out.hidden = x;
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
