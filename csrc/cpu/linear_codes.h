#pragma once
// Plain reading of one quantised row: codes, scales, biases. For the reference and for single rows.

#include "cpu/linear_kernels.h"
#include "quant/minifloat.h"

namespace saragossa::cpu {

/// Code k of an LSB-first stream of `bits`-wide codes, at most 8; one may cross a byte.
inline uint32_t code_at(const uint8_t* row, int bits, int64_t k) {
  const int64_t bit = k * bits;
  uint32_t word = row[bit / 8];
  const int shift = static_cast<int>(bit % 8);
  if (shift + bits > 8) word |= static_cast<uint32_t>(row[bit / 8 + 1]) << 8;
  return (word >> shift) & ((1u << bits) - 1u);
}

inline const uint8_t* codes_of(const Matrix& w, int64_t o) { return w.data + o * (w.in * w.bits / 8); }
inline float scale_at(const Matrix& w, int64_t o, int64_t g) {
  const int64_t at = o * (w.in / w.group) + g;
  return w.dtype == DType::u8 ? e8m0_to_f32(w.scales[at]) : load_float(w.scales, w.dtype, at);
}
inline float bias_at(const Matrix& w, int64_t o, int64_t g) {
  return w.dtype == DType::u8 ? 0.0f : load_float(w.biases, w.dtype, o * (w.in / w.group) + g);
}

/// Weight (o, k) as float: code * scale + bias, rounded once; of mxfp4 and mxfp8 exact.
inline float weight_at(const Matrix& w, int64_t o, int64_t k) {
  if (w.bits == 0) return load_float(w.data, w.dtype, o * w.in + k);
  const uint32_t bits = code_at(codes_of(w, o), w.bits, k);
  if (code_of(w) == kE2M1) return e2m1_to_f32(bits) * scale_at(w, o, k / w.group);
  if (code_of(w) == kE4M3) return e4m3_to_f32(bits) * scale_at(w, o, k / w.group);
  const float code = static_cast<float>(bits);
  return static_cast<float>(static_cast<double>(code) * scale_at(w, o, k / w.group) + bias_at(w, o, k / w.group));
}

}  // namespace saragossa::cpu
