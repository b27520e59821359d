#pragma once
// Element-wise ops: add, act_mul, sigmoid_mul, scale, copy, softcap, gather_rows, advance. Buffer slots, then the
// parameters.

#include "params/types.h"

#define SG_ADD_Y 0
#define SG_ADD_A 1
#define SG_ADD_B 2
#define SG_ADD_PARAMS 3

#define SG_ACT_MUL_Y 0
#define SG_ACT_MUL_GATE 1
#define SG_ACT_MUL_UP 2
#define SG_ACT_MUL_PARAMS 3

#define SG_SIGMOID_MUL_Y 0
#define SG_SIGMOID_MUL_X 1
#define SG_SIGMOID_MUL_GATE 2
#define SG_SIGMOID_MUL_PARAMS 3

#define SG_SCALE_X 0
#define SG_SCALE_PARAMS 1

#define SG_COPY_Y 0
#define SG_COPY_X 1
#define SG_COPY_PARAMS 2

#define SG_SOFTCAP_X 0
#define SG_SOFTCAP_PARAMS 1

#define SG_GATHER_Y 0
#define SG_GATHER_X 1
#define SG_GATHER_ROWS 2
#define SG_GATHER_PARAMS 3

#define SG_ADVANCE_IDS 0
#define SG_ADVANCE_POSITIONS 1
#define SG_ADVANCE_DRAWN 2
#define SG_ADVANCE_PARAMS 3

struct ElementwiseParams {
  sg_u32 n;  // elements
};

struct ActMulParams {
  sg_u32 n;
  sg_u32 activation;  // SG_SILU or SG_GELU_TANH
};

struct ScaleParams {
  sg_u32 n;
  sg_f32 factor;
};

struct SoftcapParams {
  sg_u32 n;
  sg_f32 cap;
};

struct GatherParams {
  sg_u32 rows;   // of y
  sg_u32 width;  // of a row
  sg_u32 from;   // rows of x
};

#ifndef __METAL_VERSION__
static_assert(sizeof(ElementwiseParams) == 4);
static_assert(sizeof(ActMulParams) == 8);
static_assert(sizeof(ScaleParams) == 8);
static_assert(sizeof(SoftcapParams) == 8);
static_assert(sizeof(GatherParams) == 12);
#endif
