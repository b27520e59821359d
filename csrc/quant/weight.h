#pragma once
// A linear's or an embedding's weight [out, in]: dense, or MLX affine.
//
// Affine layout: each row is an LSB-first bit stream of `bits`-wide codes in little-endian uint32 words,
// [out, in * bits / 32]; w = code * scale + bias, scales and biases [out, in / group] in f16, bf16 or f32.

#include "core/tensor.h"

namespace saragossa {

struct Weight {
  int64_t out = 0;
  int64_t in = 0;
  int bits = 0;   // 0: dense; else 4, 6, 8
  int group = 0;  // 32, 64, 128 values along `in` share a scale and a bias
  Tensor data;    // dense: [out, in] f32, f16, bf16; affine: u32 [out, in * bits / 32]
  Tensor scales;  // affine: [out, in / group]
  Tensor biases;  // affine: [out, in / group], zero offsets

  bool affine() const { return bits != 0; }
  int64_t row_bytes() const { return affine() ? in * bits / 8 : in * size_of(data.dtype); }
};

/// Throws Error(weights) that names `what` when the parts do not fit each other.
void check_weight(const Weight& w, std::string_view what);

}  // namespace saragossa
