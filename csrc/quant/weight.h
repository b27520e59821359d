#pragma once
// A linear's or an embedding's weight [out, in]: dense, or in one of MLX's quantised formats.
//
// Each row is an LSB-first bit stream of `bits`-wide codes in little-endian uint32 words, [out, in * bits / 32];
// `group` values along `in` share a scale:
//   affine  w = code * scale + bias; scales and biases [out, in / group] in f16, bf16 or f32
//   mxfp4   w = E2M1(code) * 2^(scale - 127); scales u8 [out, in / 32] (E8M0; 255 is NaN), no biases
//   mxfp8   w = E4M3(code) * 2^(scale - 127); as mxfp4

#include <span>

#include "core/tensor.h"

namespace saragossa {

enum class Format : uint8_t { affine, mxfp4, mxfp8 };

/// What a format may be: one row a format.
struct FormatRow {
  Format format;
  const char* name;             // as in config.json's `mode`
  std::span<const int> bits;    // widths of a code
  std::span<const int> groups;  // group sizes
  bool has_biases;
};
const FormatRow& row_of(Format format);
/// By name; Error(weights) that says what is supported.
Format format_named(std::string_view name);

struct Weight {
  int64_t out = 0;
  int64_t in = 0;
  int bits = 0;                    // 0: dense; else of a code: 2, 3, 4, 5, 6, 8
  int group = 0;                   // values along `in` that share a scale
  Tensor data;                     // dense: [out, in] f32, f16, bf16; quantised: u32 [out, in * bits / 32]
  Tensor scales;                   // [out, in / group]
  Tensor biases;                   // affine: [out, in / group], zero offsets
  Format format = Format::affine;  // unless dense

  bool quantised() const { return bits != 0; }
  bool affine() const { return quantised() && format == Format::affine; }
  /// Of scales and biases, or of a dense weight.
  DType stored() const { return quantised() ? scales.dtype : data.dtype; }
  int64_t row_bytes() const { return quantised() ? in * bits / 8 : in * size_of(data.dtype); }
};

/// Throws Error(weights) that names `what` when the parts do not fit each other.
void check_weight(const Weight& w, std::string_view what);

}  // namespace saragossa
