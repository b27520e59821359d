#pragma once
// Scratch of one forward, shared by its layers.

#include "encoder.h"
#include "nn/spec.h"

namespace saragossa {

/// Flat tensors for T rows; widths are the widest layer's.
struct LayerScratch {
  Tensor normed;         // [T * hidden]
  Tensor branch, dense;  // [T * hidden]: output of a branch; of the dense one of two
  Tensor mixed;          // [T * widest]: what goes into the mixer's output projection
  Tensor q, gate, k, v;  // of attention
  Tensor qkv, conv, z, a, b;
  Tensor gated;  // [T * widest intermediate]
  // Of experts.
  Tensor router_normed, moe_normed;  // [T * hidden]
  Tensor router, routes, weights, shared;
  Tensor per_layer;  // [T * width]

  LayerScratch(CommandEncoder& enc, const DecoderSpec& spec, const std::vector<LayerSpec>& layers, int64_t rows);
};

/// The first rows * width elements of a flat scratch, as [rows, width].
inline Tensor rows_view(const Tensor& flat, int64_t rows, int64_t width) {
  return flat.slice(0, rows * width).reshape({rows, width});
}
/// Rows of f32 [T, n], in scratch of their own. rows: i32 [R].
inline Tensor gathered(CommandEncoder& enc, const Tensor& from, const Tensor& rows) {
  const Tensor out = enc.scratch(DType::f32, {rows.shape[0], from.shape[1]});
  enc.gather_rows(out, from, rows);
  return out;
}
inline Tensor heads_view(const Tensor& flat, int64_t rows, int64_t heads, int64_t head_dim) {
  return flat.slice(0, rows * heads * head_dim).reshape({rows, heads, head_dim});
}

}  // namespace saragossa
