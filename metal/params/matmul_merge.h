#pragma once
// matmul_merge: slots beside the SG_LINEAR_Y and SG_LINEAR_BIAS ones of params/linear.h, whose function constants it
// has, too.

#include "params/linear.h"

#define SG_MERGE_PARTS 20
#define SG_MERGE_PARAMS 21

struct MergeParams {
  sg_u32 rows;        // T
  sg_u32 out[4];      // of each output
  sg_u32 splits[4];   // of its inputs
  sg_u32 first[4];    // float of `parts` at which its own begin
  sg_u32 activation;  // of SG_GATED
};

#ifndef __METAL_VERSION__
static_assert(sizeof(MergeParams) == 56);
#endif
