#include "nn/gated_delta_net.h"

namespace saragossa {

GatedDeltaNet::GatedDeltaNet(WeightLoader& weights, const DeltaSpec& spec, int64_t hidden, float eps,
                             const std::string& at)
    : spec_(spec), hidden_(hidden), eps_(eps) {
  const DeltaHeads& h = spec.heads;
  qkv_ = weights.matrix(at + "delta_qkv", h.channels(), hidden);
  z_ = weights.matrix(at + "delta_z", h.values(), hidden);
  b_ = weights.matrix(at + "delta_b", h.value_heads, hidden);
  a_ = weights.matrix(at + "delta_a", h.value_heads, hidden);
  conv_ = weights.table(at + "delta_conv", h.channels(), spec.conv_width);
  a_log_ = weights.vector(at + "delta_a_log", h.value_heads);
  dt_bias_ = weights.vector(at + "delta_dt_bias", h.value_heads);
  norm_ = weights.vector(at + "delta_norm", h.value_dim);
}

void GatedDeltaNet::mix(CommandEncoder& enc, const RecurrentLayer& state, const Batch& batch,
                        const LayerScratch& s) const {
  const int64_t rows = batch.tokens();
  const DeltaHeads& h = spec_.heads;
  const Tensor qkv = rows_view(s.qkv, rows, h.channels()), conv = rows_view(s.conv, rows, h.channels());
  const Tensor z = rows_view(s.z, rows, h.values());
  const Tensor a = rows_view(s.a, rows, h.value_heads), b = rows_view(s.b, rows, h.value_heads);
  const LinearOut outs[] = {{qkv, &qkv_, {}}, {z, &z_, {}}, {b, &b_, {}}, {a, &a_, {}}};
  enc.linear_group(rows_view(s.normed, rows, hidden_), outs);
  enc.conv_qk_norm(conv, qkv, conv_, h, state, batch);
  enc.delta_rule_norm(rows_view(s.mixed, rows, h.values()), conv, {a, b, a_log_, dt_bias_}, h, z, norm_, eps_, state,
                      batch);
}

}  // namespace saragossa
