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
  uint16_t* k_scales = nullptr;  // of u8
  uint16_t* v_scales = nullptr;
  DType dtype = DType::bf16;
  int64_t blocks = 0, kv_heads = 0, block_tokens = 0, head_dim = 0;
  const int32_t* positions = nullptr;
  const int32_t* sequence = nullptr;
  const int32_t* block_table = nullptr;
  int64_t sequences = 0, max_blocks = 0;

  CacheWriter(const KvLayer& kv, const Batch& batch);

  /// Rows of head_dim channels before [row's position] of kv head 0. Throws where the row has no place.
  int64_t place(int64_t row) const;
  /// [kv_heads, head_dim] of one row.
  void write_keys(int64_t row, const float* x, const VectorKernels& kernels) const {
    write(k, k_scales, row, x, kernels);
  }
  void write_values(int64_t row, const float* x, const VectorKernels& kernels) const {
    write(v, v_scales, row, x, kernels);
  }

 private:
  void write(uint8_t* cache, uint16_t* scales, int64_t row, const float* x, const VectorKernels& kernels) const;
};

}  // namespace saragossa::cpu
