#include "runtime/model.h"

#include <utility>

#include "core/forks.h"

namespace saragossa {

Model::Model(std::shared_ptr<Device> on, std::vector<BoundTensor> tensors, DecoderSpec spec,
             const CacheOptions& options)
    : device(std::move(on)), forks_at_load_(forks()) {
  device->check(sizes_of(spec));
  WeightLoader loader(*device, std::move(tensors));
  decoder = std::make_unique<Decoder>(loader, std::move(spec), *device);
  cache = std::make_unique<ModelCache>(*device, decoder->cache_layers(), options);
}

ModelLock::ModelLock(Model& model) : model_(model) {
  static std::atomic<uint32_t> threads{0};
  thread_local const uint32_t thread = ++threads;
  const auto now = static_cast<uint32_t>(forks());
  const uint64_t me = uint64_t{now} << 32 | thread;
  if (model.device->asynchronous() && model.forks_at_load_ != forks())
    fail(ErrorKind::usage, "the process was forked after this model was loaded on a GPU; load it again here");
  for (uint64_t holder = 0; !model_.holder_.compare_exchange_strong(holder, me); holder = 0) {
    if (holder == me)
      fail(ErrorKind::usage, "this thread is generating with this model already; a signal handler must not use it");
    if (holder >> 32 != now)
      fail(ErrorKind::usage,
           "the process was forked while a thread was generating with this model; load it again here");
    model_.holder_.wait(holder);
  }
}

ModelLock::~ModelLock() {
  model_.holder_.store(0);
  model_.holder_.notify_one();
}

}  // namespace saragossa
