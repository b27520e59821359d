#pragma once
// delta_rule_step, delta_rule_rows, delta_rule_chunks, gated_norm. Buffer slots, then the parameters. Function
// constants: 0 key_dim, 1 floats of a load (4 where rows and buffers are aligned to 16 bytes, else 1), 2 rows of
// delta_rule_rows' stage, 3 whether delta_rule_step ends with the norm. delta_rule_chunks has 0 alone.

#include "params/types.h"

#define SG_DELTA_Y 0
#define SG_DELTA_QKV 1
#define SG_DELTA_A 2
#define SG_DELTA_B 3
#define SG_DELTA_A_LOG 4
#define SG_DELTA_DT_BIAS 5
#define SG_DELTA_STATES 6
#define SG_DELTA_RUN_STARTS 7
#define SG_DELTA_SEQUENCE 8
#define SG_DELTA_STATE_IN 9
#define SG_DELTA_STATE_OUT 10
#define SG_DELTA_Z 11     // with the norm
#define SG_DELTA_NORM 12  // with the norm
#define SG_DELTA_PARAMS 13
#define SG_DELTA_STAGE 0  // threadgroup memory: k and q of the stage's rows, in whole fours, then decay and beta

#define SG_GATED_X 0
#define SG_GATED_Z 1
#define SG_GATED_W 2
#define SG_GATED_PARAMS 3

#define SG_DELTA_MOST_KEY_DIM 256
#define SG_DELTA_ROWS 4  // value rows of a simdgroup

// delta_rule_chunks: rows of a chunk, value rows of a threadgroup, its threads, its threadgroup memory.
#define SG_DELTA_CHUNK 32
#define SG_DELTA_CHUNK_VALUES 32
#define SG_DELTA_CHUNK_THREADS 128
#define SG_DELTA_PITCH 36
#define SG_DELTA_CHUNK_FLOATS (3 * 32 * SG_DELTA_PITCH + 4 * 64 + 4 * 32)

struct DeltaParams {
  sg_u32 key_heads, value_heads, value_dim;
  sg_u32 slots;
  sg_u32 chunked_rows;  // delta_rule_chunks has the runs of at least as many rows
  sg_f32 eps;
};

struct GatedNormParams {
  sg_u32 heads;  // of all rows
  sg_u32 n;
  sg_f32 eps;
};
