#pragma once
// Grouped-query attention of one layer, up to its output projection.

#include "nn/scratch.h"
#include "weights/bound_tensor.h"

namespace saragossa {

class Attention {
 public:
  /// at: prefix of the roles, "layers.3.".
  Attention(WeightLoader& weights, const AttentionSpec& spec, int64_t hidden, float eps, const std::string& at);

  /// From s.normed: keys and values of the rows go into the cache, unless they are another layer's; s.q (and s.gate)
  /// are ready for attend.
  void project(CommandEncoder& enc, const Rope& rope, const KvLayer& kv, const Batch& batch,
               const LayerScratch& s) const;
  /// Keys and values of x [T, hidden] alone go into the cache.
  void store(CommandEncoder& enc, const Rope& rope, const KvLayer& kv, const Batch& batch, const Tensor& x,
             const LayerScratch& s) const;
  /// s.mixed = attention of s.q, gated.
  void attend(CommandEncoder& enc, const KvLayer& kv, const Batch& batch, const LayerScratch& s) const;

 private:
  AttentionSpec spec_;
  int64_t hidden_;
  Weight q_, gate_, k_, v_;
  Tensor q_bias_, k_bias_, v_bias_;
  QkNorm norm_;
};

}  // namespace saragossa
