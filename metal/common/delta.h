#pragma once
// What the kernels of the delta rule share: gates, and where a value head's tensors are.

#include "common/recurrent.h"
#include "params/gated_delta.h"

constant uint SG_KEY_DIM [[function_constant(0)]];

struct Gate {
  float decay, beta;
};

/// softplus: the rounding of 1 + e is taken back, so that small e keep their digits.
inline Gate gate_of(float a, float b, float a_log, float dt_bias) {
  const float x = a + dt_bias, e = metal::exp(-metal::fabs(x)), u = 1.0f + e;
  const float softplus = metal::max(x, 0.0f) + (metal::log(u) + (e - (u - 1.0f)) / u);
  return Gate{metal::exp(-metal::exp(a_log) * softplus), 1.0f / (1.0f + metal::exp(-b))};
}

/// Where a value head's tensors are.
struct Head {
  uint index, key;  // value head, its key head
  uint channels, keys;

  uint q_at() const { return key * SG_KEY_DIM; }
  uint k_at() const { return keys + q_at(); }
};

inline Head head_of(uint index, constant DeltaParams& p) {
  const uint keys = p.key_heads * SG_KEY_DIM;
  return Head{index, index / (p.value_heads / p.key_heads), 2 * keys + p.value_heads * p.value_dim, keys};
}

/// Element 0 of a value row's state.
inline ulong state_at(int slot, Head head, uint row, constant DeltaParams& p) {
  return ((ulong(slot) * p.value_heads + head.index) * p.value_dim + row) * SG_KEY_DIM;
}
