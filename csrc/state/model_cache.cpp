#include "state/model_cache.h"

#include <algorithm>

namespace saragossa {

ModelCache::ModelCache(Device& device, const std::vector<CacheLayer>& layers, const CacheOptions& options) {
  std::vector<std::vector<KvLayerSpec>> specs;
  std::vector<RecurrentLayerSpec> recurrent;
  places_.resize(layers.size());
  recurrent_places_.resize(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    const CacheLayer& layer = layers[i];
    if (layer.recurrent) {
      recurrent_places_[i] = recurrent.size();
      recurrent.push_back(*layer.recurrent);
      continue;
    }
    if (layer.kv_from) {
      require(*layer.kv_from < i && places_[*layer.kv_from], "cache: layer ", i, " reads keys of layer ",
              *layer.kv_from);
      places_[i] = places_[*layer.kv_from];
      continue;
    }
    require(layer.kv.has_value(), "cache: layer ", i, " leaves nothing");
    const auto same = [&](const Group& g) { return g.window == layer.window; };
    const auto at = std::find_if(groups_.begin(), groups_.end(), same) - groups_.begin();
    if (at == static_cast<int64_t>(groups_.size())) {
      groups_.push_back({layer.window, nullptr});
      specs.emplace_back();
    }
    const auto group = static_cast<size_t>(at);
    places_[i] = {group, specs[group].size()};
    specs[group].push_back(*layer.kv);
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
