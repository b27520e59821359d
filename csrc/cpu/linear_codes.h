#pragma once
// Plain reading of one affine row: codes, scales, biases. For the reference and for single rows.

#include "cpu/linear.h"

namespace saragossa::cpu {

/// Code k of an LSB-first stream of `bits`-wide codes (4, 6, 8; a 6-bit code may cross a byte).
inline uint32_t code_at(const uint8_t* row, int bits, int64_t k) {
  const int64_t bit = k * bits;
  uint32_t word = row[bit / 8];
  const int shift = static_cast<int>(bit % 8);
  if (shift + bits > 8) word |= static_cast<uint32_t>(row[bit / 8 + 1]) << 8;
  return (word >> shift) & ((1u << bits) - 1u);
}

inline const uint8_t* codes_of(const Matrix& w, int64_t o) { return w.data + o * (w.in * w.bits / 8); }
inline float scale_at(const Matrix& w, int64_t o, int64_t g) {
  return load_float(w.scales, w.dtype, o * (w.in / w.group) + g);
}
inline float bias_at(const Matrix& w, int64_t o, int64_t g) {
  return load_float(w.biases, w.dtype, o * (w.in / w.group) + g);
}

/// Weight (o, k) as float: code * scale + bias, rounded once.
inline float weight_at(const Matrix& w, int64_t o, int64_t k) {
  if (w.bits == 0) return load_float(w.data, w.dtype, o * w.in + k);
  const float code = static_cast<float>(code_at(codes_of(w, o), w.bits, k));
  return static_cast<float>(static_cast<double>(code) * scale_at(w, o, k / w.group) + bias_at(w, o, k / w.group));
}

}  // namespace saragossa::cpu
