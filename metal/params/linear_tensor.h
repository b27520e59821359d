#pragma once
// matmul_tensor: slots beside those of params/linear.h, and the kernel that makes its input.

#include "params/linear.h"

#define SG_LINEAR_X_SCALE 22  // f32 [T], by which the sums of a row are multiplied

#define SG_HALF_Y 0
#define SG_HALF_SCALE 1
#define SG_HALF_X 2
#define SG_HALF_PARAMS 3

struct HalfRowsParams {
  sg_u32 rows;  // of x
  sg_u32 in;
  sg_u32 padded_rows;  // of y
  sg_u32 padded_in;
};

#ifndef __METAL_VERSION__
static_assert(sizeof(HalfRowsParams) == 16);
#endif
