#pragma once
// Activations of gated MLPs, in float.

#include "params/types.h"

inline float sg_times_sigmoid(float x, float gate) { return x / (1.0f + metal::exp(-gate)); }

inline float sg_silu(float x) { return sg_times_sigmoid(x, x); }

// tanh through exp of a negative argument: no overflow for large x.
inline float sg_tanh(float x) {
  const float e = metal::exp(-2.0f * metal::fabs(x));
  return metal::copysign((1.0f - e) / (1.0f + e), x);
}

inline float sg_gelu_tanh(float x) {
  const float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (1.0f + sg_tanh(inner));
}

inline float sg_activate(float x, uint activation) { return activation == SG_SILU ? sg_silu(x) : sg_gelu_tanh(x); }
