#pragma once
// Linears on Metal: one dispatch over up to four weights of one format; which kernel makes it.

#include <array>
#include <span>

#include "metal/launch.h"
#include "params/linear.h"

namespace saragossa::metal {

/// What one dispatch computes.
struct LinearJob {
  Tensor x;                         // f32 [T, in]
  std::span<const LinearOut> outs;  // of one format; gated: gate, then up
  uint32_t epilogue = SG_STORE;
  Activation activation = Activation::silu;
  Tensor squares = {};  // of SG_ADD_SQUARES: f32 [T, (out + 3) / 4]
  std::array<int64_t, SG_LINEAR_MOST>
      depth{};  // inputs of a split of each output (matmul kernels), a multiple of 64; 0: all

  const Weight& weight() const { return *outs[0].weight; }
  int64_t rows() const { return x.shape[0]; }
};

/// Whether one dispatch can read both weights.
bool same_format(const Weight& a, const Weight& b);

/// Elements must be read one by one: alignment or a number of inputs that the vector loads do not take.
bool is_ragged(const LinearJob& job);

/// Binds what both kernels share. tile: outputs of a threadgroup; returns the threadgroups along x.
int64_t bind_linear(Launch& launch, const LinearJob& job, int64_t tile);

/// The function constants of common/linear.h.
Constants linear_constants(const LinearJob& job, uint32_t rows_of_group);

/// Any number of rows, in blocks of up to 8. Alone has SG_ADD_SQUARES.
void launch_matvec(MetalEncoder& encoder, const LinearJob& job);
/// The two kernels for many rows, with splits of the inputs where few rows and outputs would leave most of the GPU
/// idle.
void run_matmul(MetalEncoder& encoder, const LinearJob& job);
void run_matmul_unsplit(MetalEncoder& encoder, const LinearJob& job);
/// Needs Capabilities::simdgroup_matrix.
void launch_matmul(MetalEncoder& encoder, const LinearJob& job);

/// Whether matmul_tensor has the format.
bool tensor_ops_take(const LinearJob& job);
/// Needs Capabilities::tensor_ops. Rounds x and the weight to half.
void launch_matmul_tensor(MetalEncoder& encoder, const LinearJob& job);

}  // namespace saragossa::metal
