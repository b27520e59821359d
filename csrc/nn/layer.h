#pragma once
// One pre-norm decoder block: attention and gated MLP, each with its norms and residual.

#include <memory>
#include <string>

#include "nn/spec.h"
#include "weights/bound_tensor.h"

namespace saragossa {

/// Scratch of one forward, shared by its layers. T rows; widths are the widest layer's.
struct LayerScratch {
  Tensor normed;             // [T, hidden]
  Tensor branch;             // [T, hidden]
  Tensor q, k, v, attended;  // [T * widest]
  Tensor gated;              // [T * widest intermediate]

  LayerScratch(CommandEncoder& enc, const DecoderSpec& spec, int64_t rows);
};

class DecoderLayer {
 public:
  DecoderLayer(WeightLoader& weights, const DecoderSpec& spec, size_t index);

  /// s.normed = the layer's input norm of x; for the first layer. The others have it from the finish before.
  void begin(CommandEncoder& enc, const Tensor& x, const LayerScratch& s) const;
  /// From s.normed: keys and values of the rows go into the cache; s.q is ready for attend.
  void project(CommandEncoder& enc, const Rope& rope, const KvLayer& kv, const Batch& batch,
               const LayerScratch& s) const;
  /// s.attended = attention of s.q.
  void attend(CommandEncoder& enc, const KvLayer& kv, const Batch& batch, const LayerScratch& s) const;
  /// x += attention branch, x += MLP branch; x [R, hidden], attended [R, heads * head_dim]. s.normed = x normed by
  /// `next_norm`, which belongs to whatever reads x next.
  void finish(CommandEncoder& enc, const Tensor& x, const Tensor& attended, const Tensor& next_norm,
              const LayerScratch& s) const;

  const Tensor& input_norm() const { return attn_norm_; }

  const LayerSpec& spec() const { return spec_; }

 private:
  /// x += input W^T + bias, through `post_norm` where there is one; s.normed = x normed by `next_norm`.
  void add_branch(CommandEncoder& enc, const Tensor& x, const Tensor& input, const Weight& w, const Tensor& bias,
                  const Tensor& post_norm, const Tensor& next_norm, const LayerScratch& s) const;

  LayerSpec spec_;
  int64_t hidden_;
  float eps_;
  Tensor attn_norm_, mlp_norm_, attn_post_norm_, mlp_post_norm_;
  Weight q_, k_, v_, o_, gate_, up_, down_;
  Tensor q_bias_, k_bias_, v_bias_, o_bias_, gate_bias_, up_bias_, down_bias_;
  QkNorm qk_norm_;
};

}  // namespace saragossa
