#include "runtime/model.h"

#include <unistd.h>

#include <utility>

namespace saragossa {

Model::Model(std::shared_ptr<Device> on, std::vector<BoundTensor> tensors, DecoderSpec spec,
             const CacheOptions& options)
    : device(std::move(on)) {
  WeightLoader loader(*device, std::move(tensors));
  decoder = std::make_unique<Decoder>(loader, std::move(spec), *device);
  cache = std::make_unique<KvCache>(*device, decoder->kv_layers(), options.blocks, options.block_tokens, options.dtype);
}

ModelLock::ModelLock(Model& model) : model_(model) {
  const int me = ::getpid();
  for (int holder = 0; !model_.holder_.compare_exchange_strong(holder, me); holder = 0) {
    if (holder != me)
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
