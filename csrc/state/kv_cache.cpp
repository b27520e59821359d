#include "state/kv_cache.h"

#include <cstring>
#include <utility>

namespace saragossa {

KvCache::KvCache(Device& device, const std::vector<KvLayerSpec>& layers, int64_t blocks, int64_t block_tokens,
                 DType dtype)
    : references_(static_cast<size_t>(blocks), 0), block_tokens_(block_tokens) {
  for (const KvLayerSpec& spec : layers) {
    const Shape shape{blocks, spec.kv_heads, block_tokens, spec.head_dim};
    layers_.push_back(KvLayer{device.tensor(dtype, shape, true), device.tensor(dtype, shape, true)});
    bytes_per_token_ += 2 * spec.kv_heads * spec.head_dim * size_of(dtype);
  }
  // Lowest block first: touched pages stay together.
  for (int64_t b = blocks - 1; b >= 0; --b) free_.push_back(static_cast<int32_t>(b));
}

int64_t KvCache::free_blocks() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(free_.size());
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
  const int32_t fresh = take();
  for (const KvLayer& layer : layers_) {
    for (const Tensor* t : {&layer.k, &layer.v}) {
      const int64_t bytes = t->nbytes() / t->shape[0];
      uint8_t* base = host_data<uint8_t>(*t);
      std::memcpy(base + fresh * bytes, base + block * bytes, static_cast<size_t>(bytes));
    }
  }
  return fresh;
}

SequenceState::SequenceState(SequenceState&& other) noexcept
    : cache_(other.cache_), blocks_(std::exchange(other.blocks_, {})), length_(std::exchange(other.length_, 0)) {}

void SequenceState::reserve(int64_t tokens) {
  const int64_t size = cache_->block_tokens();
  const int64_t written = length_ / size;  // first block that gets new tokens
  if (written < static_cast<int64_t>(blocks_.size()) && cache_->shared(blocks_[static_cast<size_t>(written)])) {
    int32_t& block = blocks_[static_cast<size_t>(written)];
    const int32_t mine = cache_->copy(block);
    cache_->release(block);
    block = mine;
  }
  while (static_cast<int64_t>(blocks_.size()) * size < length_ + tokens) blocks_.push_back(cache_->take());
}

void SequenceState::commit(int64_t tokens) {
  require(length_ + tokens <= static_cast<int64_t>(blocks_.size()) * cache_->block_tokens(),
          "sequence: commit of tokens that were not reserved");
  length_ += tokens;
}

void SequenceState::rewind(int64_t to) {
  require(to >= 0 && to <= length_, "sequence: rewind to ", to, " of ", length_);
  const int64_t keep = (to + cache_->block_tokens() - 1) / cache_->block_tokens();
  while (static_cast<int64_t>(blocks_.size()) > keep) {
    cache_->release(blocks_.back());
    blocks_.pop_back();
  }
  length_ = to;
}

void SequenceState::share_prefix(const SequenceState& from, int64_t tokens) {
  require(length_ == 0 && blocks_.empty(), "sequence: a prefix is shared into an empty sequence only");
  require(tokens >= 0 && tokens <= from.length_, "sequence: prefix of ", tokens, " from ", from.length_);
  const int64_t count = (tokens + cache_->block_tokens() - 1) / cache_->block_tokens();
  for (int64_t i = 0; i < count; ++i) {
    cache_->share(from.blocks_[static_cast<size_t>(i)]);
    blocks_.push_back(from.blocks_[static_cast<size_t>(i)]);
  }
  length_ = tokens;
}

}  // namespace saragossa
