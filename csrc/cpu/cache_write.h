#pragma once
// Where the rows of a step go in the KV cache, and the writing of them.

#include "core/errors.h"
#include "cpu/vector_kernels.h"
#include "encoder.h"

namespace saragossa::cpu {

/// A KV layer and a batch with raw pointers.
struct CacheWriter {
  uint8_t* k = nullptr;
  uint8_t* v = nullptr;
  bool bf16 = true;  // else f32
  int64_t blocks = 0, kv_heads = 0, block_tokens = 0, head_dim = 0;
  const int32_t* positions = nullptr;
  const int32_t* sequence = nullptr;
  const int32_t* block_table = nullptr;
  int64_t sequences = 0, max_blocks = 0;

  CacheWriter(const KvLayer& kv, const Batch& batch);

  /// Elements before [row's position] of kv head 0. Throws where the row has no place.
  int64_t place(int64_t row) const;
  /// k, v [kv_heads, head_dim] of one row.
  void write(int64_t row, const float* k_row, const float* v_row, const VectorKernels& kernels) const;
};

}  // namespace saragossa::cpu
