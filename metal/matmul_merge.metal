// y[t, o] = sum_s parts[s, t, o] (+ bias[o]), with the epilogue of a linear: what a matmul whose inputs were split
// leaves to be added.
//
// Layout: parts f32 of up to four outputs one after another, each [splits, T, out]; y f32 [T, out]. Ownership: a
// thread makes one element of y; neighbours read neighbouring floats. Precision and order: f32, parts in ascending
// order of their inputs: the same bits whenever the splits are the same. No figure of it was measured.

#include <metal_stdlib>

#include "common/linear.h"
#include "params/matmul_merge.h"

using namespace metal;

// Element `at` of an output's parts, planes of `plane` floats.
inline float merged(device const float* parts, uint splits, uint plane, uint at) {
  float sum = parts[at];
  for (uint s = 1; s < splits; ++s) sum += parts[s * plane + at];
  return sum;
}

kernel void matmul_merge(device float* y0 [[buffer(SG_LINEAR_Y0)]],
                         device float* y1 [[buffer(SG_LINEAR_Y1), function_constant(sg_second_y)]],
                         device float* y2 [[buffer(SG_LINEAR_Y2), function_constant(sg_third)]],
                         device float* y3 [[buffer(SG_LINEAR_Y3), function_constant(sg_fourth)]],
                         device const float* bias0 [[buffer(SG_LINEAR_BIAS0), function_constant(sg_biased0)]],
                         device const float* bias1 [[buffer(SG_LINEAR_BIAS1), function_constant(sg_biased1)]],
                         device const float* bias2 [[buffer(SG_LINEAR_BIAS2), function_constant(sg_biased2)]],
                         device const float* bias3 [[buffer(SG_LINEAR_BIAS3), function_constant(sg_biased3)]],
                         device const float* parts [[buffer(SG_MERGE_PARTS)]],
                         constant MergeParams& p [[buffer(SG_MERGE_PARAMS)]], uint at [[thread_position_in_grid]]) {
  const bool gated = SG_EPILOGUE == SG_GATED;
  const uint width = p.out[0] + (gated ? 0 : p.out[1] + p.out[2] + p.out[3]);
  if (at >= p.rows * width) return;
  const uint t = at / width;
  uint o = at % width, j = 0;
  LinearSide side, up;
  side.y = y0, side.bias = bias0, side.biased = SG_BIASED & 1;
  up.biased = 0;
  if (gated) {
    up.bias = bias1, up.biased = SG_BIASED & 2;
  } else if (SG_OUTS > 1 && o >= p.out[0]) {
    j = 1, o -= p.out[0];
    side.y = y1, side.bias = bias1, side.biased = SG_BIASED & 2;
    if (SG_OUTS > 2 && o >= p.out[1]) {
      j = 2, o -= p.out[1];
      side.y = y2, side.bias = bias2, side.biased = SG_BIASED & 4;
      if (SG_OUTS > 3 && o >= p.out[2]) {
        j = 3, o -= p.out[2];
        side.y = y3, side.bias = bias3, side.biased = SG_BIASED & 8;
      }
    }
  }
  side.out = p.out[j];
  const uint plane = p.rows * side.out, element = t * side.out + o;
  const float sum = merged(parts + p.first[j], p.splits[j], plane, element);
  const float other = gated ? merged(parts + p.first[1], p.splits[1], plane, element) : 0.0f;
  sg_linear_write(side, up, t, o, sum, other, p.activation);
}
