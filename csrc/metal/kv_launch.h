#pragma once
// The KV cache as kernels see it (metal/common/kv.h).

#include "metal/launch.h"
#include "params/kv.h"

namespace saragossa::metal {

inline KvParams kv_params(const KvLayer& kv, const Batch& batch) {
  u32(kv.k.numel());  // kernels count its rows and elements in 32 bits
  return {u32(kv.k.shape[0]), u32(kv.k.shape[1]), u32(batch.block_table.shape[0]), u32(batch.block_table.shape[1])};
}

}  // namespace saragossa::metal
