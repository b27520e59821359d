#pragma once
// The shape of a KV cache layer and its block table: part of the parameters of all that touch it.

#include "params/types.h"

// No row of the cache: the table does not hold the block.
#define SG_NO_ROW 0xffffffffu

// Channels of a head that share a step and a zero in a cache of u8. A whole head of 256 as one group
// has 1.7 times the error of 64 in the keys of Gemma 3 270M (1.4 % and 0.8 % of their size; 32 channels: 0.6 %).
#define SG_KV_GROUP 64

struct KvParams {
  sg_u32 blocks;
  sg_u32 kv_heads;
  sg_u32 sequences;   // rows of the block table
  sg_u32 max_blocks;  // its columns
};

#ifndef __METAL_VERSION__
static_assert(sizeof(KvParams) == 16);
#endif
