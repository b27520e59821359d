#pragma once
// Router and experts of one layer.

#include "nn/scratch.h"
#include "weights/bound_tensor.h"

namespace saragossa {

class Moe {
 public:
  Moe(WeightLoader& weights, const MoeSpec& spec, int64_t hidden, const std::string& at);

  /// x [R, hidden] += experts of s.normed; s.normed = x normed by next_norm.
  void add(CommandEncoder& enc, const Tensor& x, const Tensor& next_norm, float eps, const LayerScratch& s) const;
  /// s.branch = experts of s.moe_normed, routed by the norm of x that the router has for itself (Gemma 4).
  /// s.moe_normed = x normed by moe_norm.
  void branch(CommandEncoder& enc, const Tensor& x, const Tensor& moe_norm, float eps, const LayerScratch& s) const;

 private:
  Routes route(CommandEncoder& enc, const Tensor& router_in, const LayerScratch& s) const;

  MoeSpec spec_;
  int64_t hidden_;
  Weight router_, shared_gate_;
  Tensor router_norm_, router_scale_;
  Experts experts_;
};

}  // namespace saragossa
