#include "state/recurrent_cache.h"

#include <algorithm>
#include <cstring>

namespace saragossa {
namespace {

constexpr int64_t kFirstSlots = 4;  // of a cache that grows

}  // namespace

RecurrentCache::RecurrentCache(Device& device, const std::vector<RecurrentLayerSpec>& layers, int64_t slots)
    : device_(device), limit_(layers.empty() ? 0 : slots) {
  const int64_t first = device.lazy_memory() ? limit_ : std::min(limit_, kFirstSlots);
  for (const RecurrentLayerSpec& spec : layers) {
    const DeltaHeads& h = spec.heads;
    layers_.push_back({device.tensor(DType::f32, {first, spec.conv_width - 1, h.channels()}, true),
                       device.tensor(DType::f32, {first, h.value_heads, h.value_dim, h.key_dim}, true)});
    bytes_per_slot_ +=
        ((spec.conv_width - 1) * h.channels() + h.values() * h.key_dim) * static_cast<int64_t>(sizeof(float));
  }
  references_.assign(static_cast<size_t>(first), 0);
  add_free(0);
}

/// Lowest slot first: touched pages stay together.
void RecurrentCache::add_free(int64_t from) {
  for (auto s = static_cast<int64_t>(references_.size()) - 1; s >= from; --s) free_.push_back(static_cast<int32_t>(s));
}

int64_t RecurrentCache::free_slots() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(free_.size()) + limit_ - static_cast<int64_t>(references_.size());
}

int64_t RecurrentCache::allocated_slots() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(references_.size());
}

void RecurrentCache::grow() {
  const auto from = static_cast<int64_t>(references_.size());
  const int64_t to = std::min(limit_, from + std::max(kFirstSlots, from / 2));
  device_.wait_idle();  // steps that run write to the old tensors
  for (RecurrentLayer& layer : layers_) {
    for (Tensor* t : {&layer.conv, &layer.delta}) {
      Shape shape =
          t->shape.rank() == 3 ? Shape{to, t->shape[1], t->shape[2]} : Shape{to, t->shape[1], t->shape[2], t->shape[3]};
      const Tensor larger = device_.tensor(DType::f32, shape, true);
      std::memcpy(raw_data<uint8_t>(larger), raw_data<uint8_t>(*t), static_cast<size_t>(t->nbytes()));
      *t = larger;
    }
  }
  references_.resize(static_cast<size_t>(to), 0);
  add_free(from);
}

int32_t RecurrentCache::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty() && static_cast<int64_t>(references_.size()) < limit_) grow();
  if (free_.empty()) fail(ErrorKind::context, "the cache of recurrent states is full: all ", limit_, " are in use");
  const int32_t slot = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(slot)] = 1;
  return slot;
}

void RecurrentCache::share(int32_t slot) {
  const std::lock_guard lock(mutex_);
  ++references_[static_cast<size_t>(slot)];
}

void RecurrentCache::release(int32_t slot) {
  const std::lock_guard lock(mutex_);
  int32_t& references = references_[static_cast<size_t>(slot)];
  require(references > 0, "recurrent cache: slot ", slot, " released twice");
  if (--references == 0) free_.push_back(slot);
}

bool RecurrentCache::shared(int32_t slot) const {
  const std::lock_guard lock(mutex_);
  return references_[static_cast<size_t>(slot)] > 1;
}

}  // namespace saragossa
