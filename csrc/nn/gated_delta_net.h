#pragma once
// Gated delta net of one layer, up to its output projection (arXiv 2412.06464, as Qwen3-Next has it).

#include "nn/scratch.h"
#include "weights/bound_tensor.h"

namespace saragossa {

class GatedDeltaNet {
 public:
  GatedDeltaNet(WeightLoader& weights, const DeltaSpec& spec, int64_t hidden, float eps, const std::string& at);

  /// From s.normed to s.mixed; the states of the batch go on.
  void mix(CommandEncoder& enc, const RecurrentLayer& state, const Batch& batch, const LayerScratch& s) const;

 private:
  DeltaSpec spec_;
  int64_t hidden_;
  float eps_;
  Weight qkv_, z_, b_, a_;
  Tensor conv_;  // [channels, width]
  Tensor a_log_, dt_bias_, norm_;
};

}  // namespace saragossa
