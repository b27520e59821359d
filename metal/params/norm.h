#pragma once
// rms_norm, norm_add, norm_add_norm, norm_group, per_layer_inputs, rms_norm_split. Buffer slots, then the parameters.
// Function constant 0: floats of a load, 4 where rows and buffers are aligned to 16 bytes, else 1. norm_group alone, 1:
// how many outputs.

#include "params/types.h"

#define SG_NORM_Y 0
#define SG_NORM_X 1
#define SG_NORM_W 2
#define SG_NORM_PARAMS 3
// norm_add_norm alone: the second norm's output and weights.
#define SG_NORM_Z 4
#define SG_NORM_W2 5
// rms_norm_split alone: the squares of x, summed over each four neighbours of a row.
#define SG_NORM_SQUARES 6

// per_layer_inputs alone: what is added.
#define SG_NORM_ADDED 7
// norm_group alone: the outputs behind the first, and their weights.
#define SG_NORM_Y1 8
#define SG_NORM_W1 9
#define SG_NORM_Y2 10
#define SG_NORM_W_OF_Y2 11

#define SG_NORM_MOST 65536  // floats of a row

struct NormParams {
  sg_u32 n;  // floats of a row
  sg_f32 eps;
  sg_f32 factor;  // of norm_add_norm: the sum is multiplied with it
  sg_u32 layers;  // of per_layer_inputs
};

#ifndef __METAL_VERSION__
static_assert(sizeof(NormParams) == 16);
#endif
