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

/// Elements [i, i + 8), [i, i + 4) or [i] of a cache of `dtype`, with the widest loads that i's multiples allow.
inline void sg_kv_load(thread float (&x)[8], device const uchar* cache, uint dtype, ulong i) {
  if (dtype == SG_BF16) {
    const uint4 raw = *(device const uint4*)(cache + 2 * i);
    for (uint j = 0; j < 4; ++j) {
      x[2 * j] = as_type<float>(raw[j] << 16);
      x[2 * j + 1] = as_type<float>(raw[j] & 0xffff0000u);
    }
  } else {
    const float4 a = *(device const float4*)(cache + 4 * i), b = *(device const float4*)(cache + 4 * i + 16);
    for (uint j = 0; j < 4; ++j) x[j] = a[j], x[j + 4] = b[j];
  }
}
inline void sg_kv_load(thread float (&x)[4], device const uchar* cache, uint dtype, ulong i) {
  if (dtype == SG_BF16) {
    const uint2 raw = *(device const uint2*)(cache + 2 * i);
    for (uint j = 0; j < 2; ++j) {
      x[2 * j] = as_type<float>(raw[j] << 16);
      x[2 * j + 1] = as_type<float>(raw[j] & 0xffff0000u);
    }
  } else {
    const float4 a = *(device const float4*)(cache + 4 * i);
    for (uint j = 0; j < 4; ++j) x[j] = a[j];
  }
}
inline void sg_kv_load(thread float (&x)[1], device const uchar* cache, uint dtype, ulong i) {
  x[0] =
      dtype == SG_BF16 ? as_type<float>(uint(((device const ushort*)cache)[i]) << 16) : ((device const float*)cache)[i];
}
