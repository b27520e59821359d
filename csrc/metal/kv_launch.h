#pragma once
// The KV cache as kernels see it (metal/common/kv.h).

#include "metal/launch.h"
#include "params/kv.h"

namespace saragossa::metal {

/// The number that kernels know the cache's dtype by.
inline uint32_t kv_value(const KvLayer& kv) { return kv.k.dtype == DType::u8 ? SG_U8 : shared_value(kv.k.dtype); }

/// A slot must be bound: where there are no scales, by the tensor itself. It is not read so.
inline const Tensor& scales_of(const Tensor& cached, const Tensor& scales) { return scales ? scales : cached; }

inline KvParams kv_params(const KvLayer& kv, const Batch& batch) {
  u32(kv.k.numel());  // kernels count its rows and elements in 32 bits
  return {u32(kv.k.shape[0]), u32(kv.k.shape[1]), u32(batch.block_table.shape[0]), u32(batch.block_table.shape[1])};
}

}  // namespace saragossa::metal
