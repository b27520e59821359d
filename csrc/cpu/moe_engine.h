#pragma once
// The experts' linears on the CPU: all matrices of an op in one loop over the pool.

#include <memory>

#include "cpu/moe_plan.h"

namespace saragossa::cpu {

/// What both ops are told; rows of h: csrc/op_types.h, Experts::width.
struct MoeCall {
  const int32_t* ids = nullptr;  // [rows, top_k]
  int64_t rows = 0, hidden = 0, count = 0, top_k = 0, inner = 0, shared = 0;
  int64_t width() const { return top_k * inner + shared; }
};

struct MoeGated : MoeCall {
  float* h = nullptr;
  const float* x = nullptr;
  Activation act = Activation::silu;
  ExpertMatrices gate, up;
  Matrix shared_gate, shared_up;
  ExpertMatrices down;  // for its first bytes, which are fetched ahead; without data: not known
};

struct MoeDown : MoeCall {
  float* y = nullptr;
  const float* h = nullptr;
  const float* weights = nullptr;
  const float* gate = nullptr;  // of the shared expert; none: 1
  bool add = false;
  ExpertMatrices down;
  Matrix shared_down;
  const LinearJob* next = nullptr;  // what will probably run next
};

/// Holds the workspace between calls; one per device. A row's result does not depend on how many rows there are for 1
/// to 8 rows.
class MoeEngine {
 public:
  MoeEngine(Isa isa, Activations activations, ThreadPool& pool);
  ~MoeEngine();
  void gated(const MoeGated& call);
  void down(const MoeDown& call);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace saragossa::cpu
