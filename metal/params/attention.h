#pragma once
// attention: buffer slots, function constants, parameters.

#include "params/kv.h"
#include "params/types.h"

#define SG_ATTENTION_Y 0  // y, or the partial sums of a split
#define SG_ATTENTION_Q 1
#define SG_ATTENTION_K 2
#define SG_ATTENTION_V 3
#define SG_ATTENTION_POSITIONS 4
#define SG_ATTENTION_SEQUENCE 5
#define SG_ATTENTION_BLOCK_TABLE 6
#define SG_ATTENTION_STATS 7  // [T, heads, splits, 2]: maximum and sum of a split
#define SG_ATTENTION_PARAMS 8
// Of a cache of u8.
#define SG_ATTENTION_K_SCALES 9
#define SG_ATTENTION_V_SCALES 10
#define SG_ATTENTION_GATE 11   // where there is one
#define SG_ATTENTION_SHARED 0  // threadgroup memory

#define SG_MERGE_Y 0
#define SG_MERGE_SUMS 1
#define SG_MERGE_STATS 2
#define SG_MERGE_POSITIONS 3
#define SG_MERGE_PARAMS 4
#define SG_MERGE_GATE 5

// Most keys of a split, simdgroups of a threadgroup and query heads that share one reading of a key.
#define SG_MAX_SPLIT 256
#define SG_DECODE_SIMDGROUPS 8
#define SG_DECODE_HEADS 8

// Function constants of attention_decode. 0: channels of a head, 1: query heads of a pass, 2: the cache's dtype, 3:
// tokens of a block, 4: keys of a split, 5: whether one split is all there can be, 6: whether there is a gate.

struct DecodeParams {
  KvParams kv;
  sg_u32 heads;   // of q
  sg_u32 passes;  // the heads of a kv head are done in so many threadgroups
  sg_u32 splits;  // that a row can have
  sg_u32 round;   // heads whose sums are added up at a time
  sg_u32 sums;    // where in threadgroup memory, in floats
  sg_u32 window;  // keys a query sees; 0: all
  sg_f32 scale;
  sg_f32 softcap;  // 0: none
};

// Function constants of attention_prefill. 0: channels of a head, 1: query heads of a kv head, 2: the cache's dtype, 3:
// tokens of a block, 4: whether there is a gate.
//
// Rows (a query head of a token each) of a tile, for heads of up to SG_PREFILL_WHOLE_DIM channels and for larger ones,
// of which a simdgroup takes a half; the most channels.
#define SG_PREFILL_ROWS 32
#define SG_PREFILL_ROWS_OF_HALVES 16
#define SG_PREFILL_WHOLE_DIM 256
#define SG_PREFILL_HEAD_DIM 512

struct PrefillParams {
  KvParams kv;
  sg_u32 rows;    // tokens
  sg_u32 heads;   // of q
  sg_u32 window;  // keys a query sees; 0: all
  sg_f32 scale;
  sg_f32 softcap;  // 0: none
};

#ifndef __METAL_VERSION__
static_assert(sizeof(DecodeParams) == 48);
static_assert(sizeof(PrefillParams) == 36);
#endif
