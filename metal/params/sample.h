#pragma once
// Sampling parameters of one row, shared by C++ and MSL.

#include "params/types.h"

// Order: bias, mask, repetition, presence and frequency penalties, temperature, top-k, top-p, min-p, draw.
// A draw is argmax(z + gumbel(seed, step, token)): no sum whose order could differ between devices.
struct SampleParams {
  sg_f32 temperature;         // 0: greedy; the argmax, the lowest id on a tie
  sg_f32 top_p;               // (0, 1]; 1: off
  sg_f32 min_p;               // [0, 1]; 0: off
  sg_f32 repetition_penalty;  // > 0; 1: off; counts prompt and output
  sg_f32 presence_penalty;    // [-2, 2]; counts output only
  sg_f32 frequency_penalty;   // [-2, 2]; counts output only
  sg_i32 top_k;               // 0: off
  sg_u32 seed_lo;
  sg_u32 seed_hi;
  sg_u32 step;          // draws so far: the counter of the stream; the sample op adds 1
  sg_i32 n_bias;        // entries of the logit bias list
  sg_i32 top_logprobs;  // -1: no logprob at all; 0: the chosen one; n: and the n best
};

#ifndef __METAL_VERSION__
static_assert(sizeof(SampleParams) == 48);
#endif

// One row of the `counts` tensor, u32 per token id: output count in the low 31 bits, "in the prompt" above.
#define SG_COUNT_PROMPT 0x80000000u
// The sampled id of a row whose logits hold a NaN.
#define SG_SAMPLE_NAN (-1)
