#pragma once
// Linears (matvec, matmul): buffer slots of up to four outputs of one input, function constants, parameters.

#include "params/types.h"

#define SG_LINEAR_CODES0 0  // data of the weight: codes, or dense values
#define SG_LINEAR_SCALES0 1
#define SG_LINEAR_BIASES0 2
#define SG_LINEAR_BIAS0 3
#define SG_LINEAR_Y0 4
#define SG_LINEAR_CODES1 5
#define SG_LINEAR_SCALES1 6
#define SG_LINEAR_BIASES1 7
#define SG_LINEAR_BIAS1 8
#define SG_LINEAR_Y1 9
#define SG_LINEAR_CODES2 10
#define SG_LINEAR_SCALES2 11
#define SG_LINEAR_BIASES2 12
#define SG_LINEAR_BIAS2 13
#define SG_LINEAR_Y2 14
#define SG_LINEAR_CODES3 15
#define SG_LINEAR_SCALES3 16
#define SG_LINEAR_BIASES3 17
#define SG_LINEAR_BIAS3 18
#define SG_LINEAR_Y3 19
#define SG_LINEAR_X 20
#define SG_LINEAR_PARAMS 21
#define SG_LINEAR_SLOTS 5  // of one output
#define SG_LINEAR_MOST 4   // outputs
// 22 is matmul_tensor's (params/linear_tensor.h).
#define SG_LINEAR_SQUARES 23  // of SG_ADD_SQUARES: f32 [T, (out + 3) / 4]

// What becomes of the sums: stored, added to y, act(output 0) * output 1 stored; or added to y, and the squares of each
// four neighbours of the new y summed (matvec alone).
#define SG_STORE 0
#define SG_ADD 1
#define SG_GATED 2
#define SG_ADD_SQUARES 3

struct LinearParams {
  sg_u32 rows;           // T
  sg_u32 in;             // inputs of a row
  sg_u32 out[4];         // rows of each weight
  sg_u32 first_tile[4];  // threadgroup along x at which each output begins
  sg_u32 depth[4];    // inputs that a threadgroup of the matmul kernels takes, a multiple of 64: `in` where not split
  sg_u32 activation;  // of SG_GATED
};

#ifndef __METAL_VERSION__
static_assert(sizeof(LinearParams) == 60);
#endif
