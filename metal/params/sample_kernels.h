#pragma once
// Sampling on the Metal device: slots, sizes and scratch of its kernels. The parameters of a row: sample.h.

#include "params/sample.h"

#define SG_SAMPLE_BLOCK 128         // tokens that share a maximum: a simdgroup's load, four a lane
#define SG_SAMPLE_CHUNK 2048        // tokens of a threadgroup that scans or draws
#define SG_SAMPLE_THREADS 256       // of sample_scan, sample_draw and sample_finish
#define SG_SAMPLE_CUT_THREADS 1024  // of sample_cut
#define SG_SAMPLE_MAX_BLOCKS 4096   // of a row: a vocabulary of 524,288

// Slots, the same in every kernel of the op.
#define SG_SAMPLE_LOGITS 0         // f32 [R, V], as the model gave them
#define SG_SAMPLE_PARAMS 1         // SampleParams [S]
#define SG_SAMPLE_COUNTS 2         // u32 [S, V]
#define SG_SAMPLE_BIAS_IDS 3       // i32 [S, bias_size]
#define SG_SAMPLE_BIAS 4           // f32 [S, bias_size]
#define SG_SAMPLE_MASK 5           // u32 [S, (V + 31) / 32]
#define SG_SAMPLE_PARTIALS 6       // SamplePartial [R, chunks]
#define SG_SAMPLE_PROCESSED 7      // f32 [R, V]: after bias, mask and penalties; the logits where there are none
#define SG_SAMPLE_BLOCK_MAX 8      // f32 [R, blocks], of what is processed
#define SG_SAMPLE_RAW_BLOCK_MAX 9  // f32 [R, blocks], of the logits
#define SG_SAMPLE_CUTS 10          // SampleCut [R]
#define SG_SAMPLE_LIST 11          // u32 [R, V]: candidates of top-k and top-p
#define SG_SAMPLE_IDS 12           // i32 [R]
#define SG_SAMPLE_LOGPROBS 13      // f32 [R, 1 + top]
#define SG_SAMPLE_LOGPROB_IDS 14   // i32 [R, 1 + top]
#define SG_SAMPLE_SHAPE 15
#define SG_SAMPLE_ROWS 16  // i32 [R]: row of S that a row of logits draws with

struct SampleShape {
  sg_u32 vocab;
  sg_u32 chunks;
  sg_u32 blocks;
  sg_u32 bias_size;
  sg_u32 top;  // columns of logprobs behind the first
};

// What one threadgroup found in its chunk.
struct SamplePartial {
  sg_f32 value;  // the best l of a greedy row, z + g of a drawn one
  sg_u32 id;     // ~0: none
  sg_f32 l_max;
  sg_f32 raw_max;
  sg_f32 raw_sum;  // of exp(logit - raw_max)
  sg_u32 nan;      // 1: there is one
};

// What the filters leave: l > value, or l == value and id <= this id.
struct SampleCut {
  sg_f32 value;
  sg_i32 id;
};

#ifndef __METAL_VERSION__
static_assert(sizeof(SampleShape) == 20);
static_assert(sizeof(SamplePartial) == 24);
static_assert(sizeof(SampleCut) == 8);
#endif
