#pragma once
// Cosines and sines of a step's positions. All layers of a step ask for the same ones, so the last few are kept.

#include <array>
#include <cstdint>
#include <vector>

namespace saragossa::cpu {

class RopeTable {
 public:
  struct View {
    const float* cos;  // [rows, half], attention factor included
    const float* sin;
  };
  /// The angle is the float product position * inv_freq, as in the reference implementations.
  View get(const float* inv_freq, int64_t half, float factor, const int32_t* positions, int64_t rows);

 private:
  struct Entry {
    std::vector<float> inv_freq, cos, sin;
    std::vector<int32_t> positions;
    float factor = 0.0f;
    uint64_t used = 0;
  };
  std::array<Entry, 3> entries_;  // models have one rope, or two
  uint64_t clock_ = 0;
};

}  // namespace saragossa::cpu
