#include "nn/spec.h"

#include <algorithm>

namespace saragossa {

ModelSizes sizes_of(const DecoderSpec& spec) {
  ModelSizes out;
  out.hidden = spec.hidden;
  out.vocab = spec.vocab;
  const auto see = [&](const std::vector<LayerSpec>& layers) {
    for (const LayerSpec& layer : layers) {
      if (layer.delta) out.delta_key_dim = std::max(out.delta_key_dim, layer.delta->heads.key_dim);
      if (!layer.moe) continue;
      out.experts = std::max(out.experts, layer.moe->experts);
      out.experts_per_token = std::max(out.experts_per_token, layer.moe->top_k);
    }
  };
  see(spec.layers);
  see(spec.mtp);
  if (spec.block) see(spec.block->layers);
  return out;
}

}  // namespace saragossa
