#include "runtime/model.h"

#include <utility>

namespace saragossa {

Model::Model(std::shared_ptr<Device> on, std::vector<BoundTensor> tensors, DecoderSpec spec,
             const CacheOptions& options)
    : device(std::move(on)) {
  WeightLoader loader(*device, std::move(tensors));
  decoder = std::make_unique<Decoder>(loader, std::move(spec), *device);
  cache = std::make_unique<KvCache>(*device, decoder->kv_layers(), options.blocks, options.block_tokens, options.dtype);
}

}  // namespace saragossa
