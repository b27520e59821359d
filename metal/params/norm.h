#pragma once
// rms_norm, norm_add, norm_add_norm, rms_norm_split. Buffer slots, then the parameters. Function constant 0: floats of
// a load, 4 where rows and buffers are aligned to 16 bytes, else 1.

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

#define SG_NORM_MOST 65536  // floats of a row

struct NormParams {
  sg_u32 n;  // floats of a row
  sg_f32 eps;
};

#ifndef __METAL_VERSION__
static_assert(sizeof(NormParams) == 8);
#endif
