#pragma once
// A loaded model: weights on a device, its forward, and the cache that its sessions share.

#include <memory>
#include <mutex>
#include <vector>

#include "nn/decoder.h"

namespace saragossa {

struct CacheOptions {
  int64_t blocks = 0;          // capacity of the KV cache
  int64_t block_tokens = 256;  // 64, 128, 256 or 512
  DType dtype = DType::bf16;   // bf16 or f32
};

struct Model {
  Model(std::shared_ptr<Device> on, std::vector<BoundTensor> tensors, DecoderSpec spec, const CacheOptions& options);

  std::shared_ptr<Device> device;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<KvCache> cache;
  std::mutex mutex;  // one submission at a time
};

}  // namespace saragossa
