#pragma once
// causal_conv (with and without the norms of q and k heads), qk_l2_norm. Buffer slots, then the parameters. Function
// constants: 0 inputs of a sum, 1 channels of a unit, 2 whether q and k units are normed.

#include "params/types.h"

#define SG_CONV_Y 0
#define SG_CONV_X 1
#define SG_CONV_W 2
#define SG_CONV_STATES 3
#define SG_CONV_RUN_STARTS 4
#define SG_CONV_SEQUENCE 5
#define SG_CONV_STATE_IN 6
#define SG_CONV_STATE_OUT 7
#define SG_CONV_PARAMS 8

#define SG_L2_X 0
#define SG_L2_PARAMS 1

#define SG_CONV_ROWS 32        // of a run that a simdgroup takes
#define SG_CONV_MOST_UNIT 256  // channels
#define SG_CONV_MOST_WIDTH 16

struct ConvParams {
  sg_u32 channels, units;
  sg_u32 slots;
  sg_u32 q_units;     // those whose norm has the factor
  sg_u32 norm_units;  // q and k
  sg_f32 q_factor;
};

struct L2Params {
  sg_u32 rows, channels;
  sg_u32 q_heads, heads;  // of q; of q and k
  sg_u32 key_dim;
  sg_f32 q_factor;
};
