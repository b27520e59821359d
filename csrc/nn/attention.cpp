#include "nn/attention.h"

#include <array>

namespace saragossa {

Attention::Attention(WeightLoader& weights, const AttentionSpec& spec, int64_t hidden, float eps, const std::string& at)
    : spec_(spec), hidden_(hidden) {
  const int64_t q = spec.width(), kv = spec.kv_width();
  q_ = weights.matrix(at + "q", q, hidden);
  if (spec.gate) gate_ = weights.matrix(at + "q_gate", q, hidden);
  if (spec.qkv_bias) q_bias_ = weights.vector(at + "q.bias", q);
  if (spec.q_norm) norm_.q = weights.vector(at + "q_norm", spec.head_dim);
  norm_.eps = eps;
  if (spec.kv_from) return;
  k_ = weights.matrix(at + "k", kv, hidden);
  if (!spec.v_is_k) v_ = weights.matrix(at + "v", kv, hidden);
  if (spec.qkv_bias) {
    k_bias_ = weights.vector(at + "k.bias", kv);
    if (!spec.v_is_k) v_bias_ = weights.vector(at + "v.bias", kv);
  }
  if (spec.k_norm) norm_.k = weights.vector(at + "k_norm", spec.head_dim);
  if (spec.v_norm) norm_.v = weights.ones(spec.head_dim);
}

void Attention::project(CommandEncoder& enc, const Rope& rope, const KvLayer& kv, const Batch& batch,
                        const LayerScratch& s) const {
  const int64_t rows = batch.tokens();
  std::array<LinearOut, 4> outs;
  size_t n = 0;
  outs[n++] = {rows_view(s.q, rows, spec_.width()), &q_, q_bias_};
  if (spec_.gate) outs[n++] = {rows_view(s.gate, rows, spec_.width()), &gate_, {}};
  Tensor k, v;
  if (!spec_.kv_from) {
    k = heads_view(s.k, rows, spec_.kv_heads, spec_.head_dim);
    outs[n++] = {rows_view(s.k, rows, spec_.kv_width()), &k_, k_bias_};
    if (!spec_.v_is_k) {
      v = heads_view(s.v, rows, spec_.kv_heads, spec_.head_dim);
      outs[n++] = {rows_view(s.v, rows, spec_.kv_width()), &v_, v_bias_};
    }
  }
  enc.linear_group(rows_view(s.normed, rows, hidden_), std::span(outs.data(), n));
  enc.qk_rope_append(heads_view(s.q, rows, spec_.heads, spec_.head_dim), k, v, norm_, rope, kv, batch);
}

void Attention::store(CommandEncoder& enc, const Rope& rope, const KvLayer& kv, const Batch& batch, const Tensor& x,
                      const LayerScratch& s) const {
  const int64_t rows = batch.tokens();
  require(!spec_.kv_from && !spec_.v_is_k && !spec_.v_norm, "attention: keys and values alone of a plain layer only");
  const Tensor k = heads_view(s.k, rows, spec_.kv_heads, spec_.head_dim);
  const Tensor v = heads_view(s.v, rows, spec_.kv_heads, spec_.head_dim);
  const LinearOut outs[] = {{rows_view(s.k, rows, spec_.kv_width()), &k_, k_bias_},
                            {rows_view(s.v, rows, spec_.kv_width()), &v_, v_bias_}};
  enc.linear_group(x, outs);
  if (norm_.k) enc.rms_norm(k, k, norm_.k, norm_.eps);
  enc.rope(k, rope, batch.positions);
  enc.kv_append(kv, k, v, batch);
}

void Attention::attend(CommandEncoder& enc, const KvLayer& kv, const Batch& batch, const LayerScratch& s) const {
  const int64_t rows = batch.tokens();
  const Tensor y = heads_view(s.mixed, rows, spec_.heads, spec_.head_dim);
  const Tensor q = heads_view(s.q, rows, spec_.heads, spec_.head_dim);
  const AttentionParams params{spec_.scale, spec_.window, spec_.softcap};
  if (!spec_.gate) return enc.attention(y, q, kv, batch, params);
  enc.attention_gated(y, q, heads_view(s.gate, rows, spec_.heads, spec_.head_dim), kv, batch, params);
}

}  // namespace saragossa
