#include "nn/layer.h"

#include <algorithm>

namespace saragossa {
namespace {

/// The first rows * width elements of a flat scratch, as [rows, width].
Tensor view(const Tensor& flat, int64_t rows, int64_t width) {
  return flat.slice(0, rows * width).reshape({rows, width});
}

Tensor heads_view(const Tensor& flat, int64_t rows, int64_t heads, int64_t head_dim) {
  return flat.slice(0, rows * heads * head_dim).reshape({rows, heads, head_dim});
}

}  // namespace

LayerScratch::LayerScratch(CommandEncoder& enc, const DecoderSpec& spec, int64_t rows) {
  int64_t q_width = 0, kv_width = 0, intermediate = 0;
  for (const LayerSpec& layer : spec.layers) {
    q_width = std::max(q_width, layer.attention.heads * layer.attention.head_dim);
    kv_width = std::max(kv_width, layer.attention.kv_heads * layer.attention.head_dim);
    intermediate = std::max(intermediate, layer.mlp.intermediate);
  }
  normed = enc.scratch(DType::f32, {rows * spec.hidden});
  branch = enc.scratch(DType::f32, {rows * spec.hidden});
  q = enc.scratch(DType::f32, {rows * q_width});
  k = enc.scratch(DType::f32, {rows * kv_width});
  v = enc.scratch(DType::f32, {rows * kv_width});
  attended = enc.scratch(DType::f32, {rows * q_width});
  gated = enc.scratch(DType::f32, {rows * intermediate});
}

DecoderLayer::DecoderLayer(WeightLoader& weights, const DecoderSpec& spec, size_t index)
    : spec_(spec.layers[index]), hidden_(spec.hidden), eps_(spec.norm_eps) {
  const std::string at = "layers." + std::to_string(index) + ".";
  const AttentionSpec& a = spec_.attention;
  const int64_t q_width = a.heads * a.head_dim, kv_width = a.kv_heads * a.head_dim, inner = spec_.mlp.intermediate;

  attn_norm_ = weights.vector(at + "attn_norm", hidden_);
  mlp_norm_ = weights.vector(at + "mlp_norm", hidden_);
  if (spec_.post_norms) {
    attn_post_norm_ = weights.vector(at + "attn_post_norm", hidden_);
    mlp_post_norm_ = weights.vector(at + "mlp_post_norm", hidden_);
  }
  q_ = weights.matrix(at + "q", q_width, hidden_);
  k_ = weights.matrix(at + "k", kv_width, hidden_);
  v_ = weights.matrix(at + "v", kv_width, hidden_);
  o_ = weights.matrix(at + "o", hidden_, q_width);
  gate_ = weights.matrix(at + "gate", inner, hidden_);
  up_ = weights.matrix(at + "up", inner, hidden_);
  down_ = weights.matrix(at + "down", hidden_, inner);
  if (a.qkv_bias) {
    q_bias_ = weights.vector(at + "q.bias", q_width);
    k_bias_ = weights.vector(at + "k.bias", kv_width);
    v_bias_ = weights.vector(at + "v.bias", kv_width);
  }
  if (a.o_bias) o_bias_ = weights.vector(at + "o.bias", hidden_);
  if (spec_.mlp.bias) {
    gate_bias_ = weights.vector(at + "gate.bias", inner);
    up_bias_ = weights.vector(at + "up.bias", inner);
    down_bias_ = weights.vector(at + "down.bias", hidden_);
  }
  if (a.q_norm) qk_norm_.q = weights.vector(at + "q_norm", a.head_dim);
  if (a.k_norm) qk_norm_.k = weights.vector(at + "k_norm", a.head_dim);
  qk_norm_.eps = eps_;
}

void DecoderLayer::begin(CommandEncoder& enc, const Tensor& x, const LayerScratch& s) const {
  enc.rms_norm(view(s.normed, x.shape[0], hidden_), x, attn_norm_, eps_);
}

void DecoderLayer::project(CommandEncoder& enc, const Rope& rope, const KvLayer& kv, const Batch& batch,
                           const LayerScratch& s) const {
  const AttentionSpec& a = spec_.attention;
  const int64_t rows = batch.tokens();
  const Tensor normed = view(s.normed, rows, hidden_);
  const LinearOut outs[] = {{view(s.q, rows, a.heads * a.head_dim), &q_, q_bias_},
                            {view(s.k, rows, a.kv_heads * a.head_dim), &k_, k_bias_},
                            {view(s.v, rows, a.kv_heads * a.head_dim), &v_, v_bias_}};
  enc.linear_group(normed, outs);
  enc.qk_rope_append(heads_view(s.q, rows, a.heads, a.head_dim), heads_view(s.k, rows, a.kv_heads, a.head_dim),
                     heads_view(s.v, rows, a.kv_heads, a.head_dim), qk_norm_, rope, kv, batch);
}

void DecoderLayer::attend(CommandEncoder& enc, const KvLayer& kv, const Batch& batch, const LayerScratch& s) const {
  const AttentionSpec& a = spec_.attention;
  const int64_t rows = batch.tokens();
  enc.attention(heads_view(s.attended, rows, a.heads, a.head_dim), heads_view(s.q, rows, a.heads, a.head_dim), kv,
                batch, {a.scale, a.window, a.softcap});
}

void DecoderLayer::add_branch(CommandEncoder& enc, const Tensor& x, const Tensor& input, const Weight& w,
                              const Tensor& bias, const Tensor& post_norm, const Tensor& next_norm,
                              const LayerScratch& s) const {
  const Tensor normed = view(s.normed, x.shape[0], hidden_);
  if (!post_norm) return enc.linear_add_norm(x, normed, input, w, bias, next_norm, eps_);
  const Tensor branch = view(s.branch, x.shape[0], hidden_);
  enc.linear(branch, input, w, bias);
  enc.norm_add_norm(x, normed, branch, post_norm, next_norm, eps_);
}

void DecoderLayer::finish(CommandEncoder& enc, const Tensor& x, const Tensor& attended, const Tensor& next_norm,
                          const LayerScratch& s) const {
  const int64_t rows = x.shape[0];
  add_branch(enc, x, attended, o_, o_bias_, attn_post_norm_, mlp_norm_, s);
  const Tensor gated = view(s.gated, rows, spec_.mlp.intermediate);
  enc.linear_gated(gated, view(s.normed, rows, hidden_), gate_, up_, gate_bias_, up_bias_, spec_.mlp.activation);
  add_branch(enc, x, gated, down_, down_bias_, mlp_post_norm_, next_norm, s);
}

}  // namespace saragossa
