#include "cpu/rope_table.h"

#include <algorithm>
#include <cmath>

namespace saragossa::cpu {

RopeTable::View RopeTable::get(const float* inv_freq, int64_t half, float factor, const int32_t* positions,
                               int64_t rows) {
  const auto equal = [](const auto& kept, const auto* data, int64_t n) {
    return static_cast<int64_t>(kept.size()) == n && std::equal(kept.begin(), kept.end(), data);
  };
  ++clock_;
  Entry* oldest = &entries_[0];
  for (Entry& e : entries_) {
    if (e.used != 0 && e.factor == factor && equal(e.positions, positions, rows) && equal(e.inv_freq, inv_freq, half)) {
      e.used = clock_;
      return {e.cos.data(), e.sin.data()};
    }
    if (e.used < oldest->used) oldest = &e;
  }
  Entry& e = *oldest;
  e.used = clock_;
  e.factor = factor;
  e.inv_freq.assign(inv_freq, inv_freq + half);
  e.positions.assign(positions, positions + rows);
  e.cos.resize(static_cast<size_t>(rows * half));
  e.sin.resize(static_cast<size_t>(rows * half));
  for (int64_t t = 0; t < rows; ++t)
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(positions[t]) * inv_freq[i];
      e.cos[static_cast<size_t>(t * half + i)] = std::cos(angle) * factor;
      e.sin[static_cast<size_t>(t * half + i)] = std::sin(angle) * factor;
    }
  return {e.cos.data(), e.sin.data()};
}

}  // namespace saragossa::cpu
