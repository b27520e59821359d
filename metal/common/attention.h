#pragma once
// What the attention kernels share: which keys a query sees, and what becomes of a dot product.

#include "common/activation.h"

/// First key that a query at `position` sees; window 0: all.
inline uint sg_first_key(uint position, uint window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

/// The score of a dot product.
inline float sg_score(float dot, float scale, float softcap) {
  const float s = dot * scale;
  return softcap > 0.0f ? softcap * sg_tanh(s / softcap) : s;
}
