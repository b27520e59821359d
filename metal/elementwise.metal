// Element-wise ops of the contract. One thread per element, float throughout, no reduction: any order gives the
// same bits. Bandwidth-bound; they run on a few thousand elements a step and exist for the decomposed path.

#include <metal_stdlib>

#include "common/activation.h"
#include "params/elementwise.h"

using namespace metal;

// y = a + b; y may be a or b. f32 [n].
kernel void add(device float* y [[buffer(SG_ADD_Y)]], device const float* a [[buffer(SG_ADD_A)]],
                device const float* b [[buffer(SG_ADD_B)]], constant ElementwiseParams& p [[buffer(SG_ADD_PARAMS)]],
                uint i [[thread_position_in_grid]]) {
  if (i < p.n) y[i] = a[i] + b[i];
}

// y = act(gate) * up; y may be gate or up. f32 [n].
kernel void act_mul(device float* y [[buffer(SG_ACT_MUL_Y)]], device const float* gate [[buffer(SG_ACT_MUL_GATE)]],
                    device const float* up [[buffer(SG_ACT_MUL_UP)]],
                    constant ActMulParams& p [[buffer(SG_ACT_MUL_PARAMS)]], uint i [[thread_position_in_grid]]) {
  if (i < p.n) y[i] = sg_activate(gate[i], p.activation) * up[i];
}

// y = x * sigmoid(gate); y may be x. f32 [n].
kernel void sigmoid_mul(device float* y [[buffer(SG_SIGMOID_MUL_Y)]],
                        device const float* x [[buffer(SG_SIGMOID_MUL_X)]],
                        device const float* gate [[buffer(SG_SIGMOID_MUL_GATE)]],
                        constant ElementwiseParams& p [[buffer(SG_SIGMOID_MUL_PARAMS)]],
                        uint i [[thread_position_in_grid]]) {
  if (i < p.n) y[i] = sg_times_sigmoid(x[i], gate[i]);
}

// x *= factor, in place. f32 [n].
kernel void scale(device float* x [[buffer(SG_SCALE_X)]], constant ScaleParams& p [[buffer(SG_SCALE_PARAMS)]],
                  uint i [[thread_position_in_grid]]) {
  if (i < p.n) x[i] *= p.factor;
}

// y = x. f32 [n].
kernel void copy(device float* y [[buffer(SG_COPY_Y)]], device const float* x [[buffer(SG_COPY_X)]],
                 constant ElementwiseParams& p [[buffer(SG_COPY_PARAMS)]], uint i [[thread_position_in_grid]]) {
  if (i < p.n) y[i] = x[i];
}

// x = cap * tanh(x / cap), in place. f32 [n].
kernel void softcap(device float* x [[buffer(SG_SOFTCAP_X)]], constant SoftcapParams& p [[buffer(SG_SOFTCAP_PARAMS)]],
                    uint i [[thread_position_in_grid]]) {
  if (i < p.n) x[i] = p.cap * sg_tanh(x[i] / p.cap);
}

// y[r] = x[rows[r]]; a row outside x gives NaN, as the device cannot raise. y f32 [rows, width], x f32 [from, width].
kernel void gather_rows(device float* y [[buffer(SG_GATHER_Y)]], device const float* x [[buffer(SG_GATHER_X)]],
                        device const int* rows [[buffer(SG_GATHER_ROWS)]],
                        constant GatherParams& p [[buffer(SG_GATHER_PARAMS)]], uint i [[thread_position_in_grid]]) {
  if (i >= p.rows * p.width) return;
  const uint row = uint(rows[i / p.width]);
  y[i] = row < p.from ? x[row * p.width + i % p.width] : NAN;
}

// The drawn ids feed the next step: ids[t] = drawn[t], positions[t] += 1. i32 [n].
kernel void advance(device int* ids [[buffer(SG_ADVANCE_IDS)]], device int* positions [[buffer(SG_ADVANCE_POSITIONS)]],
                    device const int* drawn [[buffer(SG_ADVANCE_DRAWN)]],
                    constant ElementwiseParams& p [[buffer(SG_ADVANCE_PARAMS)]], uint i [[thread_position_in_grid]]) {
  if (i >= p.n) return;
  ids[i] = drawn[i];
  positions[i] += 1;
}
