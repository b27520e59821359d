#pragma once
// What the matrix kernels share: tiles of dequantised weights in threadgroup memory.

#include "common/linear.h"

inline void sg_put(threadgroup float* to, float4 v) { *(threadgroup float4*)to = v; }
inline void sg_put(threadgroup half* to, float4 v) { *(threadgroup half4*)to = half4(v); }

/// 16 values of a row of a weight from k on; zero behind the end. T: float or half.
template <class Format, class T>
inline void sg_unpack(threadgroup T* to, LinearRow row, uint k, uint in) {
  float scale = 1.0f, bias = 0.0f;
  if (Format::scaled && k < in) {
    scale = sg_stored(row.scales, k >> SG_GROUP_SHIFT, SG_DTYPE);
    if (Format::biased) bias = sg_stored(row.biases, k >> SG_GROUP_SHIFT, SG_DTYPE);
  }
  for (uint part = 0; part < 16; part += Format::chunk) {
    float w[Format::chunk];
    for (uint i = 0; i < Format::chunk; ++i) w[i] = 0.0f;
    if (k + part < in) {
      uint words[Format::words];
      Format::load(row.codes, k + part, in, words);
      for (uint i = 0; i < Format::chunk; ++i) {
        w[i] = Format::value(words, i);
        if (Format::scaled) w[i] = metal::fma(w[i], scale, bias);
      }
    }
    for (uint i = 0; i < Format::chunk; i += 4) sg_put(to + part + i, float4(w[i], w[i + 1], w[i + 2], w[i + 3]));
  }
}

template <class T>
inline void sg_unpack(threadgroup T* to, LinearRow row, uint k, uint in) {
  if (sg_mx) return SG_BITS == 4 ? sg_unpack<Mxfp4>(to, row, k, in) : sg_unpack<Mxfp8>(to, row, k, in);
  if (SG_BITS == 2) return sg_unpack<Affine2>(to, row, k, in);
  if (SG_BITS == 3) return sg_unpack<Affine3>(to, row, k, in);
  if (SG_BITS == 4) return sg_unpack<Affine4>(to, row, k, in);
  if (SG_BITS == 5) return sg_unpack<Affine5>(to, row, k, in);
  if (SG_BITS == 6) return sg_unpack<Affine6>(to, row, k, in);
  if (SG_BITS == 8) return sg_unpack<Affine8>(to, row, k, in);
  if (SG_RAGGED) return sg_unpack<DenseRagged>(to, row, k, in);
  if (SG_DTYPE == SG_F32) return sg_unpack<DenseF32>(to, row, k, in);
  if (SG_DTYPE == SG_F16) return sg_unpack<DenseF16>(to, row, k, in);
  sg_unpack<DenseBf16>(to, row, k, in);
}

/// Row i of a tile that begins at output `first` of `side`; from `taken` on it is the up weight's. Behind the end the
/// last row again.
inline LinearRow sg_tile_row(LinearSide side, LinearSide up, uint first, uint taken, uint i, uint in) {
  return i < taken ? sg_linear_row(side, metal::min(first + i, side.out - 1), in)
                   : sg_linear_row(up, metal::min(first + i - taken, side.out - 1), in);
}
