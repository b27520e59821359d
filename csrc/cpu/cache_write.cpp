#include "cpu/cache_write.h"

#include <algorithm>

#include "device.h"

namespace saragossa::cpu {

CacheWriter::CacheWriter(const KvLayer& kv, const Batch& batch)
    : k(raw_data<uint8_t>(kv.k)),
      v(raw_data<uint8_t>(kv.v)),
      k_scales(kv.k_scales ? raw_data<uint16_t>(kv.k_scales) : nullptr),
      v_scales(kv.v_scales ? raw_data<uint16_t>(kv.v_scales) : nullptr),
      dtype(kv.k.dtype),
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
  return block * kv_heads * block_tokens + position % block_tokens;
}

void CacheWriter::write(uint8_t* cache, uint16_t* scales, int64_t row, const float* x,
                        const VectorKernels& kernels) const {
  int64_t at = place(row);
  for (int64_t h = 0; h < kv_heads; ++h, at += block_tokens, x += head_dim) {
    uint8_t* to = cache + at * head_dim * size_of(dtype);
    if (dtype == DType::u8)
      kernels.to_codes(to, scales + at * kv_scales(head_dim), x, head_dim);
    else if (dtype == DType::bf16)
      kernels.to_bf16(reinterpret_cast<uint16_t*>(to), x, head_dim);
    else
      std::copy_n(x, head_dim, reinterpret_cast<float*>(to));
  }
}

}  // namespace saragossa::cpu
