#pragma once
// Mixtures of experts on Metal: what the launches for few rows (moe.cpp) and for many (moe_sorted.cpp) share.

#include "metal/launch.h"
#include "params/linear.h"
#include "params/moe.h"

namespace saragossa::metal {

/// What one dispatch multiplies: a matrix of the routed experts, two of them (gate and up), those of the shared one;
/// weights of one format. Null: none.
struct MoeWeights {
  const ExpertWeight* routed[2] = {};
  const Weight* shared[2] = {};

  uint32_t parts() const { return (routed[0] ? SG_MOE_ROUTED : 0u) | (shared[0] ? SG_MOE_SHARED : 0u); }
  bool pair() const { return routed[1] || shared[1]; }
  /// By which the kernel reads all of them.
  const Weight& any() const { return routed[0] ? routed[0]->weight : *shared[0]; }
};

/// An op's tensors, of all rows or a block of them.
struct MoeJob {
  const Experts& experts;
  Tensor y, x;  // written, multiplied
  Routes routes;
  Tensor gate;  // of the shared expert
  uint32_t epilogue = SG_STORE;
  Tensor squares = {};

  int64_t rows() const { return x.shape[0]; }
};

/// Whether one dispatch can read both weights.
bool same_codes(const Weight& a, const Weight& b);

Constants moe_constants(const MoeJob& job, const MoeWeights& weights, uint32_t epilogue, int64_t rows);
/// Parameters but for tiles; weights and parameters are bound by bind_moe. down: x is h.
MoeParams moe_params(const MoeJob& job, const MoeWeights& weights, bool down);
void bind_moe(Launch& launch, const MoeJob& job, const MoeWeights& weights, const MoeParams& params);

/// Whether so many rows take the kernels for many.
bool sorts_experts(const Context& context, int64_t rows);
/// Of rows that do; all pairs have one format each.
void run_sorted_gated(MetalEncoder& encoder, const MoeJob& job);
void run_sorted_down(MetalEncoder& encoder, const MoeJob& job);

}  // namespace saragossa::metal
