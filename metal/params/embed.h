#pragma once
// Embedding. Buffer slots, then the parameters.

#include "params/types.h"

#define SG_EMBED_Y 0
#define SG_EMBED_CODES 1
#define SG_EMBED_SCALES 2
#define SG_EMBED_BIASES 3
#define SG_EMBED_IDS 4
#define SG_EMBED_PARAMS 5

struct EmbedParams {
  sg_u32 rows;   // ids
  sg_u32 in;     // values of a row
  sg_u32 vocab;  // rows of the table
  sg_f32 scale;
};

#ifndef __METAL_VERSION__
static_assert(sizeof(EmbedParams) == 16);
#endif
