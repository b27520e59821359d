#pragma once
// rope, kv_append, qk_rope_append. Buffer slots, function constants, parameters.

#include "params/kv.h"
#include "params/types.h"

#define SG_ROPE_X 0
#define SG_ROPE_INV_FREQ 1
#define SG_ROPE_POSITIONS 2
#define SG_ROPE_PARAMS 3

// The cache's slots are the same in kv_append, kv_append_codes and qk_rope_append.
#define SG_APPEND_K 0
#define SG_APPEND_V 1
#define SG_APPEND_CACHE_K 2
#define SG_APPEND_CACHE_V 3
#define SG_APPEND_POSITIONS 4
#define SG_APPEND_SEQUENCE 5
#define SG_APPEND_BLOCK_TABLE 6
#define SG_APPEND_PARAMS 7
#define SG_APPEND_Q 8
#define SG_APPEND_INV_FREQ 9
#define SG_APPEND_Q_NORM 10
#define SG_APPEND_K_NORM 11
#define SG_APPEND_V_NORM 12
// Of a cache of u8.
#define SG_APPEND_K_SCALES 13
#define SG_APPEND_V_SCALES 14

// What qk_rope_append is given: q, k and v; q and k, which is v, too; q alone.
#define SG_APPEND_ALL 0
#define SG_APPEND_K_IS_V 1
#define SG_APPEND_Q_ALONE 2

// Function constants of the family. 0: channels of a head, 1: channel pairs that rotate, 2: the cache's dtype,
// 3: tokens of a block, 4, 5 and 6: whether q, k and v have norms, 7: what is given. rope gives the first two alone.

struct RopeParams {
  sg_u32 rows;
  sg_u32 heads;
  sg_f32 factor;  // of cosines and sines
};

struct AppendParams {
  KvParams kv;
  sg_u32 rows;
  sg_u32 heads;   // of q; kv_append: unused
  sg_f32 factor;  // as above
  sg_f32 eps;     // of the norms
};

#ifndef __METAL_VERSION__
static_assert(sizeof(RopeParams) == 12);
static_assert(sizeof(AppendParams) == 32);
#endif
