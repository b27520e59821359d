#pragma once
// Keys and values of a model's layers, in blocks that sequences share.

#include <cstdint>
#include <mutex>
#include <vector>

#include "device.h"
#include "encoder.h"

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
  int64_t blocks() const { return limit_; }
  int64_t free_blocks() const;
  /// Blocks whose memory is there.
  int64_t allocated_blocks() const;
  /// Of one token over all layers.
  int64_t bytes_per_token() const { return bytes_per_token_; }

  /// A block with one reference; Error(context) when none is free.
  int32_t take();
  void share(int32_t block);
  void release(int32_t block);
  bool shared(int32_t block) const;
  /// A new block with the same bytes.
  int32_t copy(int32_t block);

 private:
  void grow();
  void add_free(int64_t from);

  Device& device_;
  int64_t limit_;
  mutable std::mutex mutex_;  // of what follows: a session may go while another one runs
  std::vector<KvLayer> layers_;
  std::vector<int32_t> free_;
  std::vector<int32_t> references_;
  int64_t block_tokens_;
  int64_t bytes_per_token_ = 0;
};

}  // namespace saragossa
