#include "nn/layer.h"

namespace saragossa {

DecoderLayer::DecoderLayer(WeightLoader& weights, const DecoderSpec& model, const LayerSpec& spec,
                           const std::string& at)
    : spec_(spec), hidden_(model.hidden), eps_(model.norm_eps) {
  attn_norm_ = weights.vector(at + "attn_norm", hidden_);
  mlp_norm_ = weights.vector(at + "mlp_norm", hidden_);
  if (spec.post_norms) {
    attn_post_norm_ = weights.vector(at + "attn_post_norm", hidden_);
    mlp_post_norm_ = weights.vector(at + "mlp_post_norm", hidden_);
  }
  if (spec.attention) {
    attention_.emplace(weights, *spec.attention, hidden_, eps_, at);
    out_ = weights.matrix(at + "o", hidden_, spec.attention->width());
    if (spec.attention->o_bias) out_bias_ = weights.vector(at + "o.bias", hidden_);
  } else {
    delta_.emplace(weights, *spec.delta, hidden_, eps_, at);
    out_ = weights.matrix(at + "delta_out", hidden_, spec.delta->heads.values());
  }
  if (spec.mlp) {
    const int64_t inner = spec.mlp->intermediate;
    gate_ = weights.matrix(at + "gate", inner, hidden_);
    up_ = weights.matrix(at + "up", inner, hidden_);
    down_ = weights.matrix(at + "down", hidden_, inner);
    if (spec.mlp->bias) {
      gate_bias_ = weights.vector(at + "gate.bias", inner);
      up_bias_ = weights.vector(at + "up.bias", inner);
      down_bias_ = weights.vector(at + "down.bias", hidden_);
    }
  }
  if (spec.moe) moe_.emplace(weights, *spec.moe, hidden_, at);
  if (spec.moe && spec.mlp) {
    moe_norm_ = weights.vector(at + "moe_norm", hidden_);
    moe_post_norm_ = weights.vector(at + "moe_post_norm", hidden_);
    dense_post_norm_ = weights.vector(at + "dense_post_norm", hidden_);
  }
  if (spec.per_layer_input > 0) {
    per_layer_gate_ = weights.matrix(at + "per_layer_gate", spec.per_layer_input, hidden_);
    per_layer_proj_ = weights.matrix(at + "per_layer_proj", hidden_, spec.per_layer_input);
    per_layer_norm_ = weights.vector(at + "per_layer_norm", hidden_);
  }
  if (spec.layer_scalar) scalar_ = *host_data<float>(weights.vector(at + "layer_scalar", 1));
}

void DecoderLayer::begin(CommandEncoder& enc, const Tensor& x, const LayerScratch& s) const {
  enc.rms_norm(rows_view(s.normed, x.shape[0], hidden_), x, attn_norm_, eps_);
}

void DecoderLayer::add_branch(CommandEncoder& enc, const Tensor& x, const Tensor& input, const Weight& w,
                              const Tensor& bias, const Tensor& post_norm, const Tensor& next_norm,
                              const LayerScratch& s) const {
  const Tensor normed = rows_view(s.normed, x.shape[0], hidden_);
  if (!post_norm) return enc.linear_add_norm(x, normed, input, w, bias, next_norm, eps_);
  const Tensor branch = rows_view(s.branch, x.shape[0], hidden_);
  enc.linear(branch, input, w, bias);
  enc.norm_add_norm(x, normed, branch, post_norm, next_norm, eps_);
}

void DecoderLayer::add_post_normed(CommandEncoder& enc, const Tensor& x, const Tensor& y, const Tensor& next_norm,
                                   const Tensor& per_layer, const LayerScratch& s) const {
  const int64_t rows = x.shape[0], width = spec_.per_layer_input;
  const Tensor normed = rows_view(s.normed, rows, hidden_);
  if (width == 0) return enc.norm_add_norm(x, normed, y, mlp_post_norm_, next_norm, eps_, scalar_);
  enc.norm_add(x, y, mlp_post_norm_, eps_);
  const Tensor gate = rows_view(s.per_layer, rows, width), branch = rows_view(s.branch, rows, hidden_);
  enc.linear(gate, x, per_layer_gate_);
  enc.act_mul(gate, gate, per_layer, spec_.mlp->activation);
  enc.linear(branch, gate, per_layer_proj_);
  enc.norm_add_norm(x, normed, branch, per_layer_norm_, next_norm, eps_, scalar_);
}

void DecoderLayer::finish(CommandEncoder& enc, const Tensor& x, const Tensor& mixed, const Tensor& next_norm,
                          const Tensor& per_layer, const LayerScratch& s) const {
  const int64_t rows = x.shape[0];
  add_branch(enc, x, mixed, out_, out_bias_, attn_post_norm_, mlp_norm_, s);
  if (!spec_.mlp) return moe_->add(enc, x, next_norm, eps_, s);
  const Tensor gated = rows_view(s.gated, rows, spec_.mlp->intermediate);
  enc.linear_gated(gated, rows_view(s.normed, rows, hidden_), gate_, up_, gate_bias_, up_bias_, spec_.mlp->activation);
  if (!spec_.post_norms)
    return enc.linear_add_norm(x, rows_view(s.normed, rows, hidden_), gated, down_, down_bias_, next_norm, eps_);
  const Tensor branch = rows_view(s.branch, rows, hidden_);
  if (!moe_) {
    enc.linear(branch, gated, down_, down_bias_);
    return add_post_normed(enc, x, branch, next_norm, per_layer, s);
  }
  // Gemma 4: the dense MLP and the experts, each normed, together.
  const Tensor dense = rows_view(s.dense, rows, hidden_);
  enc.linear(dense, gated, down_, down_bias_);
  moe_->branch(enc, x, moe_norm_, eps_, s);
  enc.rms_norm(dense, dense, dense_post_norm_, eps_);
  enc.norm_add(dense, branch, moe_post_norm_, eps_);
  add_post_normed(enc, x, dense, next_norm, per_layer, s);
}

}  // namespace saragossa
