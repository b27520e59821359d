#pragma once
// The KV cache of one layer: k, v bf16, f32 or u8 [blocks, kv_heads, block_tokens, head_dim], and the block table
// i32 [sequences, max_blocks] that leads to it. bf16 goes by its bits: no GPU needs to know the type.
//
// u8: x = code * step + zero; step and zero are bf16, one word (step low, zero high) for each SG_KV_GROUP channels of a
// row: [blocks, kv_heads, block_tokens, groups]. A group with a value that is not finite is NaN.

#include "params/kv.h"
#include "params/types.h"

/// One of a layer's two tensors; scales: of u8 alone.
struct KvTensor {
  device const uchar* data;
  device const uint* scales;
};

/// Rounds to nearest even; a NaN stays a NaN.
inline ushort sg_to_bf16(float x) {
  const uint u = as_type<uint>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return ushort((u >> 16) | 0x40u);
  return ushort((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

inline float sg_kv_step(uint scale) { return as_type<float>(scale << 16); }
inline float sg_kv_zero(uint scale) { return as_type<float>(scale & 0xffff0000u); }

/// Step and zero of values in [low, high], rounded outward: codes reach both ends.
inline uint sg_kv_scale(float low, float high) {
  uint zero = as_type<uint>(low);
  if ((zero & 0x80000000u) != 0 && (zero & 0xffffu) != 0) zero += 0x10000u;
  zero &= 0xffff0000u;
  const uint step = as_type<uint>((high - as_type<float>(zero)) / 255.0f) + 0xffffu;
  return zero | (step < 0x00800000u ? 0 : step >> 16);  // no steps below the normal numbers
}

inline uchar sg_kv_code(float x, uint scale) {
  const float step = sg_kv_step(scale), inverse = step > 0.0f ? 1.0f / step : 0.0f;
  return uchar(metal::clamp(metal::rint((x - sg_kv_zero(scale)) * inverse), 0.0f, 255.0f));
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

/// Element `i` of a cache of `dtype`: bf16 or f32.
inline void sg_kv_store(device uchar* cache, uint dtype, ulong i, float x) {
  if (dtype == SG_BF16)
    ((device ushort*)cache)[i] = sg_to_bf16(x);
  else
    ((device float*)cache)[i] = x;
}

/// The scale of channel `c` of `row`, of heads of `d` channels.
inline uint sg_kv_scale_at(KvTensor kv, uint row, uint c, uint d) {
  return kv.scales[ulong(row) * ((d + SG_KV_GROUP - 1) / SG_KV_GROUP) + c / SG_KV_GROUP];
}

/// Channels [c, c + 8), [c, c + 4) or [c] of `row` of heads of `d`, with the widest loads that c's multiples allow.
inline void sg_kv_load(thread float (&x)[8], KvTensor kv, uint dtype, uint row, uint c, uint d) {
  const ulong i = ulong(row) * d + c;
  if (dtype == SG_U8) {
    const uint2 raw = *(device const uint2*)(kv.data + i);
    const uint scale = sg_kv_scale_at(kv, row, c, d);
    const float step = sg_kv_step(scale), zero = sg_kv_zero(scale);
    for (uint j = 0; j < 8; ++j) x[j] = float(raw[j / 4] >> (8 * (j % 4)) & 0xffu) * step + zero;
  } else if (dtype == SG_BF16) {
    const uint4 raw = *(device const uint4*)(kv.data + 2 * i);
    for (uint j = 0; j < 4; ++j) {
      x[2 * j] = as_type<float>(raw[j] << 16);
      x[2 * j + 1] = as_type<float>(raw[j] & 0xffff0000u);
    }
  } else {
    const float4 a = *(device const float4*)(kv.data + 4 * i), b = *(device const float4*)(kv.data + 4 * i + 16);
    for (uint j = 0; j < 4; ++j) x[j] = a[j], x[j + 4] = b[j];
  }
}
inline void sg_kv_load(thread float (&x)[4], KvTensor kv, uint dtype, uint row, uint c, uint d) {
  const ulong i = ulong(row) * d + c;
  if (dtype == SG_U8) {
    const uint raw = *(device const uint*)(kv.data + i);
    const uint scale = sg_kv_scale_at(kv, row, c, d);
    const float step = sg_kv_step(scale), zero = sg_kv_zero(scale);
    for (uint j = 0; j < 4; ++j) x[j] = float(raw >> (8 * j) & 0xffu) * step + zero;
  } else if (dtype == SG_BF16) {
    const uint2 raw = *(device const uint2*)(kv.data + 2 * i);
    for (uint j = 0; j < 2; ++j) {
      x[2 * j] = as_type<float>(raw[j] << 16);
      x[2 * j + 1] = as_type<float>(raw[j] & 0xffff0000u);
    }
  } else {
    const float4 a = *(device const float4*)(kv.data + 4 * i);
    for (uint j = 0; j < 4; ++j) x[j] = a[j];
  }
}
inline void sg_kv_load(thread float (&x)[1], KvTensor kv, uint dtype, uint row, uint c, uint d) {
  const ulong i = ulong(row) * d + c;
  if (dtype == SG_U8) {
    const uint scale = sg_kv_scale_at(kv, row, c, d);
    x[0] = float(kv.data[i]) * sg_kv_step(scale) + sg_kv_zero(scale);
  } else if (dtype == SG_BF16) {
    x[0] = as_type<float>(uint(((device const ushort*)kv.data)[i]) << 16);
  } else {
    x[0] = ((device const float*)kv.data)[i];
  }
}
