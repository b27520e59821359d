#pragma once
// Keys and values of a model's layers, in blocks that sequences share.

#include <cstdint>
#include <vector>

#include "device.h"
#include "encoder.h"
#include "state/counted_pool.h"

namespace saragossa {

struct KvLayerSpec {
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
};

/// A pool of at most `blocks` blocks; block i is row i of every layer's K and V. On a device with lazy memory pages are
/// committed when first written; on others the tensors start small and double, which waits for the device.
class KvCache {
 public:
  KvCache(Device& device, const std::vector<KvLayerSpec>& layers, int64_t blocks, int64_t block_tokens, DType dtype);

  const KvLayer& layer(size_t i) const { return layers_[i]; }
  int64_t block_tokens() const { return block_tokens_; }
  /// The most that there can be.
  int64_t blocks() const { return pool_.limit(); }
  int64_t free_blocks() const { return pool_.free(); }
  /// Blocks whose memory is there.
  int64_t allocated_blocks() const { return pool_.allocated(); }
  /// Of one token over all layers.
  int64_t bytes_per_token() const { return bytes_per_token_; }

  /// A block with one reference; Error(context) when none is free.
  int32_t take();
  void share(int32_t block) { pool_.share(block); }
  void release(int32_t block) { pool_.release(block); }
  bool shared(int32_t block) const { return pool_.shared(block); }
  /// A new block with the same bytes.
  int32_t copy(int32_t block);

 private:
  int64_t grow(int64_t from);

  Device& device_;
  CountedPool pool_;
  std::vector<KvLayer> layers_;
  int64_t block_tokens_;
  int64_t bytes_per_token_ = 0;
};

}  // namespace saragossa
