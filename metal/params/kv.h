#pragma once
// The shape of a KV cache layer and its block table: part of the parameters of all that touch it.

#include "params/types.h"

// No row of the cache: the table does not hold the block.
#define SG_NO_ROW 0xffffffffu

struct KvParams {
  sg_u32 blocks;
  sg_u32 kv_heads;
  sg_u32 sequences;   // rows of the block table
  sg_u32 max_blocks;  // its columns
};

#ifndef __METAL_VERSION__
static_assert(sizeof(KvParams) == 16);
#endif
