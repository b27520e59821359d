#pragma once
// One pre-norm decoder block: a mixer (attention or a gated delta net) and an MLP, experts, or both, each with its
// norms and residual.

#include <optional>
#include <string>

#include "nn/attention.h"
#include "nn/gated_delta_net.h"
#include "nn/moe.h"

namespace saragossa {

class DecoderLayer {
 public:
  /// at: prefix of the roles, "layers.3.".
  DecoderLayer(WeightLoader& weights, const DecoderSpec& model, const LayerSpec& spec, const std::string& at);

  /// s.normed = the layer's input norm of x; for the first layer. The others have it from the finish before.
  void begin(CommandEncoder& enc, const Tensor& x, const LayerScratch& s) const;
  /// x += mixer branch of `mixed` [R, mixed_width], x += MLP branch. s.normed = x normed by `next_norm`, which belongs
  /// to whatever reads x next. per_layer: this layer's own input [R, per_layer_input] or none.
  void finish(CommandEncoder& enc, const Tensor& x, const Tensor& mixed, const Tensor& next_norm,
              const Tensor& per_layer, const LayerScratch& s) const;

  const Tensor& input_norm() const { return attn_norm_; }
  const LayerSpec& spec() const { return spec_; }
  /// One of them is there.
  const Attention* attention() const { return attention_ ? &*attention_ : nullptr; }
  const GatedDeltaNet* delta() const { return delta_ ? &*delta_ : nullptr; }

 private:
  /// x += input W^T + bias, through `post_norm` where there is one; s.normed = x normed by `next_norm`.
  void add_branch(CommandEncoder& enc, const Tensor& x, const Tensor& input, const Weight& w, const Tensor& bias,
                  const Tensor& post_norm, const Tensor& next_norm, const LayerScratch& s) const;
  /// x = (x + mlp_post_norm(y)) * scalar, and the layer's own input where it has one; s.normed = x normed.
  void add_post_normed(CommandEncoder& enc, const Tensor& x, const Tensor& y, const Tensor& next_norm,
                       const Tensor& per_layer, const LayerScratch& s) const;

  LayerSpec spec_;
  int64_t hidden_;
  float eps_;
  float scalar_ = 1.0f;
  Tensor attn_norm_, mlp_norm_, attn_post_norm_, mlp_post_norm_;
  std::optional<Attention> attention_;
  std::optional<GatedDeltaNet> delta_;
  std::optional<Moe> moe_;
  Weight out_, gate_, up_, down_;
  Tensor out_bias_, gate_bias_, up_bias_, down_bias_;
  Tensor moe_norm_, moe_post_norm_, dense_post_norm_;
  Weight per_layer_gate_, per_layer_proj_;
  Tensor per_layer_norm_;
};

}  // namespace saragossa
