#include "state/model_cache.h"

#include <algorithm>

namespace saragossa {

ModelCache::ModelCache(Device& device, const std::vector<LayerSpec>& layers, const CacheOptions& options) {
  std::vector<std::vector<KvLayerSpec>> specs;
  std::vector<RecurrentLayerSpec> recurrent;
  places_.resize(layers.size());
  recurrent_places_.resize(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    const LayerSpec& layer = layers[i];
    if (layer.delta) {
      recurrent_places_[i] = recurrent.size();
      recurrent.push_back({layer.delta->heads, layer.delta->conv_width});
      continue;
    }
    const AttentionSpec& a = *layer.attention;
    if (a.kv_from) {
      require(*a.kv_from < i && places_[*a.kv_from], "spec: layer ", i, " reads keys of layer ", *a.kv_from);
      places_[i] = places_[*a.kv_from];
      continue;
    }
    const auto same = [&](const Group& g) { return g.window == a.window; };
    const auto at = std::find_if(groups_.begin(), groups_.end(), same) - groups_.begin();
    if (at == static_cast<int64_t>(groups_.size())) {
      groups_.push_back({a.window, nullptr});
      specs.emplace_back();
    }
    const auto group = static_cast<size_t>(at);
    places_[i] = {group, specs[group].size()};
    specs[group].push_back({a.kv_heads, a.head_dim});
  }
  if (groups_.empty()) {
    groups_.emplace_back();
    specs.emplace_back();
  }
  for (size_t g = 0; g < groups_.size(); ++g)
    groups_[g].cache = std::make_unique<KvCache>(device, specs[g], options.blocks, options.block_tokens, options.dtype);
  recurrent_ = std::make_unique<RecurrentCache>(device, recurrent, options.slots);
}

int64_t ModelCache::bytes_per_token() const {
  int64_t sum = 0;
  for (const Group& g : groups_) sum += g.cache->bytes_per_token();
  return sum;
}

}  // namespace saragossa
