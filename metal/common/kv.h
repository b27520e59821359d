#pragma once
// The KV cache of one layer: k, v bf16 or f32 [blocks, kv_heads, block_tokens, head_dim], and the block table
// i32 [sequences, max_blocks] that leads to it. bf16 goes by its bits: no GPU needs to know the type.

#include "params/kv.h"
#include "params/types.h"

/// Rounds to nearest even; a NaN stays a NaN.
inline ushort sg_to_bf16(float x) {
  const uint u = as_type<uint>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return ushort((u >> 16) | 0x40u);
  return ushort((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/// Which of the [blocks, kv_heads, block_tokens] rows holds key `position` of `sequence` and `kv_head`; SG_NO_ROW where
/// the table has no such block.
inline uint sg_kv_row(constant KvParams& kv, device const int* block_table, uint sequence, uint position, uint kv_head,
                      uint block_tokens) {
  const uint column = position / block_tokens;
  if (sequence >= kv.sequences || column >= kv.max_blocks) return SG_NO_ROW;
  const uint block = uint(block_table[sequence * kv.max_blocks + column]);
  if (block >= kv.blocks) return SG_NO_ROW;
  return (block * kv.kv_heads + kv_head) * block_tokens + position % block_tokens;
}

/// Element `i` of a cache of `dtype`.
inline void sg_kv_store(device uchar* cache, uint dtype, ulong i, float x) {
  if (dtype == SG_BF16)
    ((device ushort*)cache)[i] = sg_to_bf16(x);
  else
    ((device float*)cache)[i] = x;
}
