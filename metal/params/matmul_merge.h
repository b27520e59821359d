#pragma once
// matmul_merge: slots beside the SG_LINEAR_Y and SG_LINEAR_BIAS ones of params/linear.h, whose function constants it
// has, too.

#include "params/linear.h"

#define SG_MERGE_PARTS 15
#define SG_MERGE_PARAMS 16

struct MergeParams {
  sg_u32 rows;        // T
  sg_u32 out[3];      // of each output
  sg_u32 splits[3];   // of its inputs
  sg_u32 first[3];    // float of `parts` at which its own begin
  sg_u32 activation;  // of SG_GATED
};

#ifndef __METAL_VERSION__
static_assert(sizeof(MergeParams) == 44);
#endif
