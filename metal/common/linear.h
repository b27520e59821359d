#pragma once
// What matvec and matmul share: function constants, the buffers of up to four outputs, the choice between them.

#include "common/activation.h"
#include "common/quant.h"
#include "params/linear.h"

constant uint SG_BITS [[function_constant(0)]];         // of a code; 0: dense
constant uint SG_GROUP_SHIFT [[function_constant(1)]];  // log2 of the group size
constant uint SG_DTYPE [[function_constant(2)]];     // of scales and biases (E8M0: mxfp4, mxfp8), or of a dense weight
constant uint SG_ROWS [[function_constant(3)]];      // rows of x that a threadgroup takes
constant uint SG_OUTS [[function_constant(4)]];      // weights: 1 to 4
constant uint SG_BIASED [[function_constant(5)]];    // bit j: output j has a bias
constant uint SG_EPILOGUE [[function_constant(6)]];  // SG_STORE, SG_ADD, ...: params/linear.h
constant uint SG_RAGGED [[function_constant(7)]];    // dense, loads are guarded element by element

// Which buffers are bound.
constant bool sg_second = SG_OUTS > 1;
constant bool sg_third = SG_OUTS > 2;
constant bool sg_fourth = SG_OUTS > 3;
constant bool sg_mx = SG_BITS != 0 && SG_DTYPE == SG_E8M0;
constant bool sg_scaled0 = SG_BITS != 0;
constant bool sg_scaled1 = SG_OUTS > 1 && SG_BITS != 0;
constant bool sg_scaled2 = SG_OUTS > 2 && SG_BITS != 0;
constant bool sg_scaled3 = SG_OUTS > 3 && SG_BITS != 0;
constant bool sg_affine0 = SG_BITS != 0 && SG_DTYPE != SG_E8M0;
constant bool sg_affine1 = SG_OUTS > 1 && SG_BITS != 0 && SG_DTYPE != SG_E8M0;
constant bool sg_affine2 = SG_OUTS > 2 && SG_BITS != 0 && SG_DTYPE != SG_E8M0;
constant bool sg_affine3 = SG_OUTS > 3 && SG_BITS != 0 && SG_DTYPE != SG_E8M0;
constant bool sg_biased0 = (SG_BIASED & 1) != 0;
constant bool sg_biased1 = (SG_BIASED & 2) != 0;
constant bool sg_biased2 = (SG_BIASED & 4) != 0;
constant bool sg_biased3 = (SG_BIASED & 8) != 0;
constant bool sg_second_y = SG_OUTS > 1 && SG_EPILOGUE != SG_GATED;
constant bool sg_squared = SG_EPILOGUE == SG_ADD_SQUARES;

/// One output: its weight [out, in], bias [out] and y [T, out].
struct LinearSide {
  device const uint* codes;
  device const uchar* scales;
  device const uchar* biases;
  device const float* bias;
  device float* y;
  uint out;
  uint biased;
  uint depth;  // inputs of a threadgroup
};

// The buffers as parameters of a kernel, and its outputs out of them.
// clang-format off
#define SG_LINEAR_ARGUMENTS                                                                  \
  device const uint* codes0 [[buffer(SG_LINEAR_CODES0)]],                                    \
  device const uchar* scales0 [[buffer(SG_LINEAR_SCALES0), function_constant(sg_scaled0)]],  \
  device const uchar* biases0 [[buffer(SG_LINEAR_BIASES0), function_constant(sg_affine0)]],  \
  device const float* bias0 [[buffer(SG_LINEAR_BIAS0), function_constant(sg_biased0)]],      \
  device float* y0 [[buffer(SG_LINEAR_Y0)]],                                                 \
  device const uint* codes1 [[buffer(SG_LINEAR_CODES1), function_constant(sg_second)]],      \
  device const uchar* scales1 [[buffer(SG_LINEAR_SCALES1), function_constant(sg_scaled1)]],  \
  device const uchar* biases1 [[buffer(SG_LINEAR_BIASES1), function_constant(sg_affine1)]],  \
  device const float* bias1 [[buffer(SG_LINEAR_BIAS1), function_constant(sg_biased1)]],      \
  device float* y1 [[buffer(SG_LINEAR_Y1), function_constant(sg_second_y)]],                 \
  device const uint* codes2 [[buffer(SG_LINEAR_CODES2), function_constant(sg_third)]],       \
  device const uchar* scales2 [[buffer(SG_LINEAR_SCALES2), function_constant(sg_scaled2)]],  \
  device const uchar* biases2 [[buffer(SG_LINEAR_BIASES2), function_constant(sg_affine2)]],  \
  device const float* bias2 [[buffer(SG_LINEAR_BIAS2), function_constant(sg_biased2)]],      \
  device float* y2 [[buffer(SG_LINEAR_Y2), function_constant(sg_third)]],                    \
  device const uint* codes3 [[buffer(SG_LINEAR_CODES3), function_constant(sg_fourth)]],      \
  device const uchar* scales3 [[buffer(SG_LINEAR_SCALES3), function_constant(sg_scaled3)]],  \
  device const uchar* biases3 [[buffer(SG_LINEAR_BIASES3), function_constant(sg_affine3)]],  \
  device const float* bias3 [[buffer(SG_LINEAR_BIAS3), function_constant(sg_biased3)]],      \
  device float* y3 [[buffer(SG_LINEAR_Y3), function_constant(sg_fourth)]],                   \
  constant LinearParams& p [[buffer(SG_LINEAR_PARAMS)]]

// side: the output of this threadgroup, whose tile then counts from the output's first; up: of a gated pair.
#define SG_LINEAR_SELECT(side, up, tile)                        \
  LinearSide side = SG_LINEAR_SIDE0, up = SG_LINEAR_SIDE0;      \
  if (SG_EPILOGUE == SG_GATED) {                                \
    up = SG_LINEAR_SIDE1;                                       \
  } else if (SG_OUTS > 3 && tile >= p.first_tile[3]) {          \
    side = SG_LINEAR_SIDE3;                                     \
    tile -= p.first_tile[3];                                    \
  } else if (SG_OUTS > 2 && tile >= p.first_tile[2]) {          \
    side = SG_LINEAR_SIDE2;                                     \
    tile -= p.first_tile[2];                                    \
  } else if (SG_OUTS > 1 && tile >= p.first_tile[1]) {          \
    side = SG_LINEAR_SIDE1;                                     \
    tile -= p.first_tile[1];                                    \
  }
#define SG_LINEAR_SIDE0 LinearSide{codes0, scales0, biases0, bias0, y0, p.out[0], SG_BIASED & 1, p.depth[0]}
#define SG_LINEAR_SIDE1 LinearSide{codes1, scales1, biases1, bias1, y1, p.out[1], SG_BIASED & 2, p.depth[1]}
#define SG_LINEAR_SIDE2 LinearSide{codes2, scales2, biases2, bias2, y2, p.out[2], SG_BIASED & 4, p.depth[2]}
#define SG_LINEAR_SIDE3 LinearSide{codes3, scales3, biases3, bias3, y3, p.out[3], SG_BIASED & 8, p.depth[3]}
// clang-format on

/// A row of a weight.
struct LinearRow {
  device const uint* codes;
  device const uchar* scales;  // of the row, as the next
  device const uchar* biases;
};

/// Row o of a weight with `in` inputs.
inline LinearRow sg_linear_row(LinearSide side, uint o, uint in) {
  LinearRow row;
  if (SG_BITS == 0) {
    row.codes = (device const uint*)((device const uchar*)side.codes + ulong(o) * in * (SG_DTYPE == SG_F32 ? 4 : 2));
    return row;
  }
  row.codes = side.codes + ulong(o) * (in / 32 * SG_BITS);
  const ulong offset = ulong(o) * (in >> SG_GROUP_SHIFT) * sg_stored_bytes(SG_DTYPE);
  row.scales = side.scales + offset;
  if (!sg_mx) row.biases = side.biases + offset;
  return row;
}

/// Dense, any alignment and number of inputs: eight guarded elements.
struct DenseRagged {
  enum : uint { scaled = 0, biased = 0, chunk = 8, words = 8 };
  static void load(device const uint* row, uint k, uint in, thread uint* w) {
    for (uint i = 0; i < 8; ++i)
      w[i] = k + i < in ? as_type<uint>(sg_stored((device const uchar*)row, k + i, SG_DTYPE)) : 0;
  }
  static float value(const thread uint* w, uint i) { return as_type<float>(w[i]); }
};

/// Values k..k+7 of a row of x.
inline void sg_load_x(device const float* x, uint k, uint in, thread float* v) {
  if (SG_RAGGED) {
    for (uint i = 0; i < 8; ++i) v[i] = k + i < in ? x[k + i] : 0.0f;
    return;
  }
  device const float4* from = (device const float4*)(x + k);
  const float4 a = from[0], b = from[1];
  for (uint i = 0; i < 4; ++i) {
    v[i] = a[i];
    v[4 + i] = b[i];
  }
}

/// Bias and epilogue of one element; other: the sum of the up weight of a gated pair. Returns what it has written.
inline float sg_linear_write(LinearSide side, LinearSide up, uint t, uint o, float sum, float other, uint activation) {
  device float* y = side.y + t * side.out + o;
  if (side.biased) sum += side.bias[o];
  if (SG_EPILOGUE == SG_GATED) {
    if (up.biased) other += up.bias[o];
    sum = sg_activate(sum, activation) * other;
  } else if (SG_EPILOGUE == SG_ADD || sg_squared) {
    sum = *y + sum;
  }
  *y = sum;
  return sum;
}
