#include "state/recurrent_cache.h"

#include <algorithm>

namespace saragossa {
namespace {

constexpr int64_t kFirstSlots = 4;  // of a cache that grows

}  // namespace

RecurrentCache::RecurrentCache(Device& device, const std::vector<RecurrentLayerSpec>& layers, int64_t slots)
    : device_(device), pool_("recurrent cache: slot", layers.empty() ? 0 : slots) {
  const int64_t first = device.lazy_memory() ? pool_.limit() : std::min(pool_.limit(), kFirstSlots);
  for (const RecurrentLayerSpec& spec : layers) {
    const DeltaHeads& h = spec.heads;
    layers_.push_back({device.tensor(DType::f32, {first, spec.conv_width - 1, h.channels()}, true),
                       device.tensor(DType::f32, {first, h.value_heads, h.value_dim, h.key_dim}, true)});
    bytes_per_slot_ +=
        ((spec.conv_width - 1) * h.channels() + h.values() * h.key_dim) * static_cast<int64_t>(sizeof(float));
  }
  pool_.grown(first);
}

int64_t RecurrentCache::grow(int64_t from) {
  const int64_t to = std::min(slots(), from + std::max(kFirstSlots, from / 2));
  device_.wait_idle();  // steps that run write to the old tensors
  for (RecurrentLayer& layer : layers_)
    for (Tensor* t : {&layer.conv, &layer.delta}) *t = with_rows(device_, *t, to);
  return to;
}

int32_t RecurrentCache::take() {
  const int32_t slot = pool_.take([&](int64_t from) { return grow(from); });
  if (slot < 0) fail(ErrorKind::context, "the cache of recurrent states is full: all ", slots(), " are in use");
  return slot;
}

}  // namespace saragossa
