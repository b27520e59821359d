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
    : device_(device), pool_("kv cache: block", blocks), block_tokens_(block_tokens) {
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
  pool_.grown(first);
}

int64_t KvCache::grow(int64_t from) {
  const int64_t to = std::min(blocks(), 2 * from);
  device_.wait_idle();  // steps that run write to the old tensors
  for (KvLayer& layer : layers_)
    for (Tensor* t : tensors_of(layer)) *t = with_rows(device_, *t, to);
  return to;
}

int32_t KvCache::take() {
  const int32_t block = pool_.take([&](int64_t from) { return grow(from); });
  if (block < 0)
    fail(ErrorKind::context, "the KV cache is full: all ", blocks(), " blocks of ", block_tokens_,
         " tokens are in use");
  return block;
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
