#include "nn/scratch.h"

#include <algorithm>

namespace saragossa {

LayerScratch::LayerScratch(CommandEncoder& enc, const DecoderSpec& spec, const std::vector<LayerSpec>& layers,
                           int64_t rows) {
  int64_t mixed_width = 0, q_width = 0, gate_width = 0, kv_width = 0, channels = 0, values = 0, value_heads = 0,
          inner = 0, experts = 0, top_k = 0, per_layer_width = 0;
  bool both = false, own_norm = false, shared_gate = false;
  for (const LayerSpec& layer : layers) {
    mixed_width = std::max(mixed_width, layer.mixed_width());
    if (const auto& attention = layer.attention) {
      q_width = std::max(q_width, attention->width());
      if (attention->gate) gate_width = std::max(gate_width, attention->width());
      if (!attention->kv_from) kv_width = std::max(kv_width, attention->kv_width());
    } else {
      const DeltaHeads& h = layer.delta->heads;
      channels = std::max(channels, h.channels());
      values = std::max(values, h.values());
      value_heads = std::max(value_heads, h.value_heads);
    }
    if (layer.mlp) inner = std::max(inner, layer.mlp->intermediate);
    if (const auto& m = layer.moe) {
      inner = std::max(inner, m->width());
      experts = std::max(experts, m->experts);
      top_k = std::max(top_k, m->top_k);
      both |= layer.mlp.has_value();
      own_norm |= m->router_norm;
      shared_gate |= m->shared_gate;
    }
    per_layer_width = std::max(per_layer_width, layer.per_layer_input);
  }
  const auto take = [&](Tensor& t, int64_t width, DType dtype = DType::f32) {
    if (width > 0) t = enc.scratch(dtype, {rows * width});
  };
  take(normed, spec.hidden);
  take(branch, spec.hidden);
  take(mixed, mixed_width);
  take(q, q_width);
  take(gate, gate_width);
  take(k, kv_width);
  take(v, kv_width);
  take(qkv, channels);
  take(conv, channels);
  take(z, values);
  take(a, value_heads);
  take(b, value_heads);
  take(gated, inner);
  take(dense, both ? spec.hidden : 0);
  take(router_normed, own_norm ? spec.hidden : 0);
  take(moe_normed, both ? spec.hidden : 0);
  take(router, experts);
  take(routes, top_k, DType::i32);
  take(weights, top_k);
  take(shared, shared_gate ? 1 : 0);
  take(per_layer, per_layer_width);
}

}  // namespace saragossa
