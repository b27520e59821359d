#pragma once
// A loaded model: weights on a device, its forward, and the cache that its sessions share.

#include <atomic>
#include <memory>
#include <vector>

#include "nn/decoder.h"

namespace saragossa {

struct Model {
  Model(std::shared_ptr<Device> on, std::vector<BoundTensor> tensors, DecoderSpec spec, const CacheOptions& options);

  std::shared_ptr<Device> device;
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<ModelCache> cache;

 private:
  friend class ModelLock;
  const int forks_at_load_;
  std::atomic<uint64_t> holder_{0};  // forks (high half) and thread (low half) of who submits; 0: none
};

/// Holds a model for one submission. Error(usage) where nobody would ever let go of it: in a forked child whose parent
/// held it at the fork, and in a thread that holds it already (a signal handler that runs in the middle of a
/// submission). So it is in a forked child of an asynchronous device, which has no GPU to wait for.
class ModelLock {
 public:
  explicit ModelLock(Model& model);
  ~ModelLock();
  ModelLock(const ModelLock&) = delete;
  ModelLock& operator=(const ModelLock&) = delete;

 private:
  Model& model_;
};

}  // namespace saragossa
