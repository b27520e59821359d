#include "cpu/cache_write.h"

#include <algorithm>

#include "device.h"

namespace saragossa::cpu {

CacheWriter::CacheWriter(const KvLayer& kv, const Batch& batch)
    : k(raw_data<uint8_t>(kv.k)),
      v(raw_data<uint8_t>(kv.v)),
      bf16(kv.k.dtype == DType::bf16),
      blocks(kv.k.shape[0]),
      kv_heads(kv.k.shape[1]),
      block_tokens(kv.block_tokens()),
      head_dim(kv.k.shape[3]),
      positions(raw_data<int32_t>(batch.positions)),
      sequence(raw_data<int32_t>(batch.sequence)),
      block_table(raw_data<int32_t>(batch.block_table)),
      sequences(batch.block_table.shape[0]),
      max_blocks(batch.block_table.shape[1]) {}

int64_t CacheWriter::place(int64_t row) const {
  const int64_t position = positions[row], s = sequence[row];
  require(s >= 0 && s < sequences, "kv_append: row ", row, " is of sequence ", s, ", there are ", sequences);
  require(position >= 0 && position / block_tokens < max_blocks, "kv_append: position ", position,
          " is outside of a table of ", max_blocks, " blocks of ", block_tokens);
  const int64_t block = block_table[s * max_blocks + position / block_tokens];
  require(block >= 0 && block < blocks, "kv_append: block ", block, " of sequence ", s, " is outside of a cache of ",
          blocks);
  return (block * kv_heads * block_tokens + position % block_tokens) * head_dim;
}

void CacheWriter::write(int64_t row, const float* k_row, const float* v_row, const VectorKernels& kernels) const {
  int64_t at = place(row);
  for (int64_t h = 0; h < kv_heads; ++h, at += block_tokens * head_dim) {
    if (bf16) {
      kernels.to_bf16(reinterpret_cast<uint16_t*>(k) + at, k_row + h * head_dim, head_dim);
      kernels.to_bf16(reinterpret_cast<uint16_t*>(v) + at, v_row + h * head_dim, head_dim);
    } else {
      std::copy_n(k_row + h * head_dim, head_dim, reinterpret_cast<float*>(k) + at);
      std::copy_n(v_row + h * head_dim, head_dim, reinterpret_cast<float*>(v) + at);
    }
  }
}

}  // namespace saragossa::cpu
