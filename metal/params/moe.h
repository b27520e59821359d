#pragma once
// Mixtures of experts: buffer slots, function constants, parameters of moe.metal and moe_sorted.metal.

#include "params/types.h"

#define SG_MOE_MOST_EXPERTS 512
#define SG_MOE_MOST_CHOSEN 16

#define SG_ROUTE_IDS 0
#define SG_ROUTE_WEIGHTS 1
#define SG_ROUTE_LOGITS 2
#define SG_ROUTE_SCALE 3
#define SG_ROUTE_PARAMS 4

struct RouteParams {
  sg_u32 experts;
  sg_u32 chosen;
  sg_u32 renormalize;
  sg_u32 scaled;  // SG_ROUTE_SCALE is bound to something else where not
};

// Function constants 0 to 7: common/linear.h. SG_OUTS and SG_BIASED have another meaning in these families: which
// experts a dispatch makes, and whether the shared one has a gate.
#define SG_MOE_ROUTED 1
#define SG_MOE_SHARED 2
#define SG_MOE_BOTH 3

// Weights: of the routed experts (gate and up; down alone has the first), then of the shared one.
#define SG_MOE_CODES0 0
#define SG_MOE_SCALES0 1
#define SG_MOE_BIASES0 2
#define SG_MOE_CODES1 3
#define SG_MOE_SCALES1 4
#define SG_MOE_BIASES1 5
#define SG_MOE_SHARED_CODES0 6
#define SG_MOE_SHARED_SCALES0 7
#define SG_MOE_SHARED_BIASES0 8
#define SG_MOE_SHARED_CODES1 9
#define SG_MOE_SHARED_SCALES1 10
#define SG_MOE_SHARED_BIASES1 11
#define SG_MOE_SLOTS 3  // of one weight

#define SG_MOE_Y 12  // what is written: h, y, or the parts of y
#define SG_MOE_X 13  // what is multiplied: x, or h
#define SG_MOE_IDS 14
#define SG_MOE_WEIGHTS 15
#define SG_MOE_GATE 16  // of the shared expert: f32 [T, 1]
#define SG_MOE_SQUARES 17
#define SG_MOE_PARAMS 18
#define SG_MOE_ORDER 19  // moe_sorted: places by expert
#define SG_MOE_TILES 20

struct MoeParams {
  sg_u32 rows;     // T
  sg_u32 chosen;   // experts of a row
  sg_u32 experts;  // routed ones
  sg_u32 in;       // inputs of an expert's weights
  sg_u32 out;      // their outputs
  sg_u32 stride0;  // rows of an expert in weight 0, and the first of them that are meant
  sg_u32 offset0;
  sg_u32 stride1;
  sg_u32 offset1;
  sg_u32 shared_in;
  sg_u32 shared_out;
  sg_u32 width;         // floats of a row of h
  sg_u32 tiles;         // of outputs of a routed expert
  sg_u32 shared_tiles;  // of the shared one
  sg_u32 first_shared;  // threadgroup with which the shared expert begins
  sg_u32 activation;
};

#define SG_SORT_IDS 0
#define SG_SORT_ORDER 1
#define SG_SORT_TILES 2
#define SG_SORT_PARAMS 3

struct SortParams {
  sg_u32 places;  // T * chosen
  sg_u32 experts;
  sg_u32 rows;   // of a tile
  sg_u32 tiles;  // most of them; each is expert, first place in order, places: three words
};

#ifndef __METAL_VERSION__
static_assert(sizeof(RouteParams) == 16);
static_assert(sizeof(MoeParams) == 64);
static_assert(sizeof(SortParams) == 16);
#endif
