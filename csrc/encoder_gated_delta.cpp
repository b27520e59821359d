// The gated delta net's ops: checks, records, decompositions.

#include "encoder.h"
#include "encoder_checks.h"

namespace saragossa {

void CommandEncoder::causal_conv(const Tensor& y, const Tensor& x, const Tensor& w, const RecurrentLayer& state,
                                 const Batch& batch) {
  check::causal_conv(y, x, w, state, batch);
  record("causal_conv", TensorList(x, w, state.conv, batch.run_starts, batch.sequence, batch.state_in, batch.state_out),
         TensorList(y, state.conv));
  do_causal_conv(y, x, w, state, batch);
}

void CommandEncoder::qk_l2_norm(const Tensor& x, const DeltaHeads& heads) {
  check::qk_l2_norm(x, heads);
  record("qk_l2_norm", TensorList(x), TensorList(x));
  do_qk_l2_norm(x, heads);
}

void CommandEncoder::delta_rule(const Tensor& y, const Tensor& qkv, const DeltaGates& gates, const DeltaHeads& heads,
                                const RecurrentLayer& state, const Batch& batch) {
  check::delta_rule(y, qkv, gates, heads, state, batch);
  record("delta_rule",
         TensorList(qkv, gates.a, gates.b, gates.a_log, gates.dt_bias, state.delta, batch.run_starts, batch.sequence,
                    batch.state_in, batch.state_out),
         TensorList(y, state.delta));
  do_delta_rule(y, qkv, gates, heads, state, batch);
}

void CommandEncoder::gated_norm(const Tensor& x, const Tensor& z, const Tensor& w, float eps) {
  check::gated_norm(x, z, w);
  record("gated_norm", TensorList(x, z, w), TensorList(x));
  do_gated_norm(x, z, w, eps);
}

void CommandEncoder::conv_qk_norm(const Tensor& y, const Tensor& x, const Tensor& w, const DeltaHeads& heads,
                                  const RecurrentLayer& state, const Batch& batch) {
  check::causal_conv(y, x, w, state, batch);
  check::qk_l2_norm(y, heads);
  if (!fused()) return CommandEncoder::do_conv_qk_norm(y, x, w, heads, state, batch);
  if (has_fused(FusedOp::conv_qk_norm))
    record("conv_qk_norm",
           TensorList(x, w, state.conv, batch.run_starts, batch.sequence, batch.state_in, batch.state_out),
           TensorList(y, state.conv));
  do_conv_qk_norm(y, x, w, heads, state, batch);
}

void CommandEncoder::do_conv_qk_norm(const Tensor& y, const Tensor& x, const Tensor& w, const DeltaHeads& heads,
                                     const RecurrentLayer& state, const Batch& batch) {
  causal_conv(y, x, w, state, batch);
  qk_l2_norm(y, heads);
}

void CommandEncoder::delta_rule_norm(const Tensor& y, const Tensor& qkv, const DeltaGates& gates,
                                     const DeltaHeads& heads, const Tensor& z, const Tensor& w, float eps,
                                     const RecurrentLayer& state, const Batch& batch) {
  check::delta_rule(y, qkv, gates, heads, state, batch);
  check::gated_norm(y, z, w);
  require(w.shape[0] == heads.value_dim, "delta_rule_norm: a norm of ", w.shape[0], " for heads of ", heads.value_dim);
  if (!fused()) return CommandEncoder::do_delta_rule_norm(y, qkv, gates, heads, z, w, eps, state, batch);
  if (has_fused(FusedOp::delta_rule_norm))
    record("delta_rule_norm",
           TensorList(qkv, gates.a, gates.b, gates.a_log, gates.dt_bias, z, w, state.delta, batch.run_starts,
                      batch.sequence, batch.state_in, batch.state_out),
           TensorList(y, state.delta));
  do_delta_rule_norm(y, qkv, gates, heads, z, w, eps, state, batch);
}

void CommandEncoder::do_delta_rule_norm(const Tensor& y, const Tensor& qkv, const DeltaGates& gates,
                                        const DeltaHeads& heads, const Tensor& z, const Tensor& w, float eps,
                                        const RecurrentLayer& state, const Batch& batch) {
  delta_rule(y, qkv, gates, heads, state, batch);
  gated_norm(y, z, w, eps);
}

}  // namespace saragossa
