#include "state/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace saragossa {
namespace {

constexpr int64_t kFirstTokens = 2048;  // of a cache that grows

/// What a layer has, block by block.
template <class Layer>
auto tensors_of(Layer& layer) {
  std::vector out{&layer.k, &layer.v};
  if (layer.k_scales) out.insert(out.end(), {&layer.k_scales, &layer.v_scales});
  return out;
}

}  // namespace

KvCache::KvCache(Device& device, const std::vector<KvLayerSpec>& layers, int64_t blocks, int64_t block_tokens,
                 DType dtype)
    : device_(device), limit_(blocks), block_tokens_(block_tokens) {
  const int64_t first =
      device.lazy_memory() ? blocks : std::min(blocks, std::max<int64_t>(1, kFirstTokens / block_tokens));
  for (const KvLayerSpec& spec : layers) {
    const Shape shape{first, spec.kv_heads, block_tokens, spec.head_dim};
    KvLayer layer{device.tensor(dtype, shape, true), device.tensor(dtype, shape, true)};
    if (dtype == DType::u8) {
      const Shape scales{first, spec.kv_heads, block_tokens, kv_scales(spec.head_dim)};
      layer.k_scales = device.tensor(DType::bf16, scales, true);
      layer.v_scales = device.tensor(DType::bf16, scales, true);
    }
    layers_.push_back(layer);
    for (const Tensor* t : tensors_of(layer)) bytes_per_token_ += t->nbytes() / (first * block_tokens);
  }
  references_.assign(static_cast<size_t>(first), 0);
  add_free(0);
}

/// Lowest block first: touched pages stay together.
void KvCache::add_free(int64_t from) {
  for (auto b = static_cast<int64_t>(references_.size()) - 1; b >= from; --b) free_.push_back(static_cast<int32_t>(b));
}

int64_t KvCache::free_blocks() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(free_.size()) + limit_ - static_cast<int64_t>(references_.size());
}

int64_t KvCache::allocated_blocks() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(references_.size());
}

void KvCache::grow() {
  const auto from = static_cast<int64_t>(references_.size());
  const int64_t to = std::min(limit_, 2 * from);
  device_.wait_idle();  // steps that run write to the old tensors
  for (KvLayer& layer : layers_) {
    for (Tensor* t : tensors_of(layer)) {
      const Tensor larger = device_.tensor(t->dtype, {to, t->shape[1], t->shape[2], t->shape[3]}, true);
      std::memcpy(raw_data<uint8_t>(larger), raw_data<uint8_t>(*t), static_cast<size_t>(t->nbytes()));
      *t = larger;
    }
  }
  references_.resize(static_cast<size_t>(to), 0);
  add_free(from);
}

void KvCache::share(int32_t block) {
  const std::lock_guard lock(mutex_);
  ++references_[static_cast<size_t>(block)];
}

bool KvCache::shared(int32_t block) const {
  const std::lock_guard lock(mutex_);
  return references_[static_cast<size_t>(block)] > 1;
}

int32_t KvCache::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty() && static_cast<int64_t>(references_.size()) < limit_) grow();
  if (free_.empty())
    fail(ErrorKind::context, "the KV cache is full: all ", blocks(), " blocks of ", block_tokens_,
         " tokens are in use");
  const int32_t block = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(block)] = 1;
  return block;
}

void KvCache::release(int32_t block) {
  const std::lock_guard lock(mutex_);
  int32_t& references = references_[static_cast<size_t>(block)];
  require(references > 0, "kv cache: block ", block, " released twice");
  if (--references == 0) free_.push_back(block);
}

int32_t KvCache::copy(int32_t block) {
  device_.wait_idle();  // first: nothing is taken where it fails
  const int32_t fresh = take();
  for (const KvLayer& layer : layers_) {
    for (const Tensor* t : tensors_of(layer)) {
      const int64_t bytes = t->nbytes() / t->shape[0];
      auto* base = raw_data<uint8_t>(*t);
      std::memcpy(base + fresh * bytes, base + block * bytes, static_cast<size_t>(bytes));
    }
  }
  return fresh;
}

}  // namespace saragossa
