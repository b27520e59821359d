#pragma once
// What the kernels of experts share: which weights a dispatch reads, and as LinearSide what of them belongs to whom.

#include "common/linear.h"
#include "params/moe.h"

// Which experts a dispatch makes, and which buffers are bound for that.
constant bool sg_routed = (SG_OUTS & SG_MOE_ROUTED) != 0;
constant bool sg_shared = (SG_OUTS & SG_MOE_SHARED) != 0;
constant bool sg_shared_gate = (SG_OUTS & SG_MOE_SHARED) != 0 && SG_BIASED != 0;
constant bool sg_pair = SG_EPILOGUE == SG_GATED;
constant bool sg_routed_scaled = (SG_OUTS & SG_MOE_ROUTED) != 0 && SG_BITS != 0;
constant bool sg_shared_scaled = (SG_OUTS & SG_MOE_SHARED) != 0 && SG_BITS != 0;
constant bool sg_routed_affine = (SG_OUTS & SG_MOE_ROUTED) != 0 && SG_BITS != 0 && SG_DTYPE != SG_E8M0;
constant bool sg_shared_affine = (SG_OUTS & SG_MOE_SHARED) != 0 && SG_BITS != 0 && SG_DTYPE != SG_E8M0;
constant bool sg_routed_pair = (SG_OUTS & SG_MOE_ROUTED) != 0 && SG_EPILOGUE == SG_GATED;
constant bool sg_shared_pair = (SG_OUTS & SG_MOE_SHARED) != 0 && SG_EPILOGUE == SG_GATED;
constant bool sg_routed_pair_scaled = (SG_OUTS & SG_MOE_ROUTED) != 0 && SG_EPILOGUE == SG_GATED && SG_BITS != 0;
constant bool sg_routed_pair_affine =
    (SG_OUTS & SG_MOE_ROUTED) != 0 && SG_EPILOGUE == SG_GATED && SG_BITS != 0 && SG_DTYPE != SG_E8M0;
constant bool sg_shared_pair_scaled = (SG_OUTS & SG_MOE_SHARED) != 0 && SG_EPILOGUE == SG_GATED && SG_BITS != 0;
constant bool sg_shared_pair_affine =
    (SG_OUTS & SG_MOE_SHARED) != 0 && SG_EPILOGUE == SG_GATED && SG_BITS != 0 && SG_DTYPE != SG_E8M0;

// clang-format off
#define SG_MOE_ARGUMENTS                                                                                        \
  device const uint* codes0 [[buffer(SG_MOE_CODES0), function_constant(sg_routed)]],                            \
  device const uchar* scales0 [[buffer(SG_MOE_SCALES0), function_constant(sg_routed_scaled)]],                  \
  device const uchar* biases0 [[buffer(SG_MOE_BIASES0), function_constant(sg_routed_affine)]],                  \
  device const uint* codes1 [[buffer(SG_MOE_CODES1), function_constant(sg_routed_pair)]],                       \
  device const uchar* scales1 [[buffer(SG_MOE_SCALES1), function_constant(sg_routed_pair_scaled)]],             \
  device const uchar* biases1 [[buffer(SG_MOE_BIASES1), function_constant(sg_routed_pair_affine)]],             \
  device const uint* shared_codes0 [[buffer(SG_MOE_SHARED_CODES0), function_constant(sg_shared)]],              \
  device const uchar* shared_scales0 [[buffer(SG_MOE_SHARED_SCALES0), function_constant(sg_shared_scaled)]],    \
  device const uchar* shared_biases0 [[buffer(SG_MOE_SHARED_BIASES0), function_constant(sg_shared_affine)]],    \
  device const uint* shared_codes1 [[buffer(SG_MOE_SHARED_CODES1), function_constant(sg_shared_pair)]],         \
  device const uchar* shared_scales1                                                                            \
      [[buffer(SG_MOE_SHARED_SCALES1), function_constant(sg_shared_pair_scaled)]],                              \
  device const uchar* shared_biases1                                                                            \
      [[buffer(SG_MOE_SHARED_BIASES1), function_constant(sg_shared_pair_affine)]],                              \
  constant MoeParams& p [[buffer(SG_MOE_PARAMS)]]

#define SG_MOE_SIDE0 sg_moe_side(codes0, scales0, biases0)
#define SG_MOE_SIDE1 sg_moe_side(codes1, scales1, biases1)
#define SG_MOE_SHARED_SIDE0 sg_moe_side(shared_codes0, shared_scales0, shared_biases0)
#define SG_MOE_SHARED_SIDE1 sg_moe_side(shared_codes1, shared_scales1, shared_biases1)
// clang-format on

inline LinearSide sg_moe_side(device const uint* codes, device const uchar* scales, device const uchar* biases) {
  LinearSide side;
  side.codes = codes, side.scales = scales, side.biases = biases;
  return side;
}

/// Rows of the weights that a threadgroup reads: from `base` on, `out` of them, twice where there is a pair.
struct MoeSides {
  LinearSide side, up;
  uint base, up_base, out, in;
};

/// Row i of a tile from output `first` on, `taken` of each weight; behind the end the last row again.
inline LinearRow sg_moe_row(MoeSides s, uint first, uint taken, uint i) {
  return i < taken ? sg_linear_row(s.side, s.base + metal::min(first + i, s.out - 1), s.in)
                   : sg_linear_row(s.up, s.up_base + metal::min(first + i - taken, s.out - 1), s.in);
}

/// The expert of a place; an id that there is not counts as the last, its results are NaN.
inline uint sg_expert(int id, uint experts) { return metal::min(uint(id), experts - 1); }
inline float sg_known(int id, uint experts, float value) { return uint(id) < experts ? value : NAN; }

inline float sg_sigmoid(float x) { return 1.0f / (1.0f + metal::exp(-x)); }
