#include "encoder.h"

#include "encoder_checks.h"

namespace saragossa {
namespace {

bool overlap(const Touch& a, const Touch& b) { return a.buffer == b.buffer && a.begin < b.end && b.begin < a.end; }

bool any_overlap(std::span<const Touch> a, std::span<const Touch> b) {
  for (const Touch& x : a)
    for (const Touch& y : b)
      if (overlap(x, y)) return true;
  return false;
}

}  // namespace

void OpRecords::push(const char* name, const TensorList& reads, const TensorList& writes) {
  if (ops_.empty()) {  // a step of a small model
    ops_.reserve(512);
    touches_.reserve(4096);
  }
  OpRecord op{name, false, touches_.size(), reads.size(), writes.size()};
  for (const Tensor* t : reads) touch(*t);
  for (const Tensor* t : writes) touch(*t);
  for (size_t i = since_barrier_; i < ops_.size() && !op.barrier; ++i) {
    const OpRecord& earlier = ops_[i];
    op.barrier = any_overlap(this->writes(earlier), this->reads(op)) ||
                 any_overlap(this->writes(earlier), this->writes(op)) ||
                 any_overlap(this->reads(earlier), this->writes(op));
  }
  if (op.barrier) since_barrier_ = ops_.size();
  ops_.push_back(op);
}

void CommandEncoder::record(const char* name, const TensorList& reads, const TensorList& writes) {
  require(!submitted_, name, ": the encoder was submitted already");
  records_.push(name, reads, writes);
}

Tensor CommandEncoder::scratch(DType dtype, Shape shape) {
  require(!submitted_, "scratch: the encoder was submitted already");
  return do_scratch(dtype, shape);
}

Submission CommandEncoder::submit(bool interruptible) {
  require(!submitted_, "submit: the encoder was submitted already");
  submitted_ = true;
  return do_submit(interruptible);
}

// --- simple ops ---------------------------------------------------------------------------------

void CommandEncoder::embed(const Tensor& y, const Weight& table, const Tensor& ids, float scale) {
  check::embed(y, table, ids);
  record("embed", TensorList(table, ids), TensorList(y));
  do_embed(y, table, ids, scale);
}

void CommandEncoder::rms_norm(const Tensor& y, const Tensor& x, const Tensor& w, float eps) {
  check::rms_norm(y, x, w);
  record("rms_norm", TensorList(x, w), TensorList(y));
  do_rms_norm(y, x, w, eps);
}

void CommandEncoder::add(const Tensor& y, const Tensor& a, const Tensor& b) {
  check::same("add", y, a);
  check::same("add", y, b);
  record("add", TensorList(a, b), TensorList(y));
  do_add(y, a, b);
}

void CommandEncoder::act_mul(const Tensor& y, const Tensor& gate, const Tensor& up, Activation act) {
  check::same("act_mul", y, gate);
  check::same("act_mul", y, up);
  record("act_mul", TensorList(gate, up), TensorList(y));
  do_act_mul(y, gate, up, act);
}

void CommandEncoder::linear(const Tensor& y, const Tensor& x, const Weight& w, const Tensor& bias) {
  check::linear("linear", y, x, w, bias);
  record("linear", TensorList(x, w, bias), TensorList(y));
  do_linear(y, x, w, bias);
}

void CommandEncoder::rope(const Tensor& x, const Rope& rope, const Tensor& positions) {
  check::rope(x, rope, positions);
  record("rope", TensorList(x, rope.inv_freq, positions), TensorList(x));
  do_rope(x, rope, positions);
}

void CommandEncoder::kv_append(const KvLayer& kv, const Tensor& k, const Tensor& v, const Batch& batch) {
  check::kv_append(kv, k, v, batch);
  record("kv_append", TensorList(k, v, batch.positions, batch.sequence, batch.block_table),
         TensorList(kv.k, kv.v, kv.k_scales, kv.v_scales));
  do_kv_append(kv, k, v, batch);
}

void CommandEncoder::attention(const Tensor& y, const Tensor& q, const KvLayer& kv, const Batch& batch,
                               const AttentionParams& params) {
  check::attention(y, q, kv, batch, params);
  record("attention",
         TensorList(q, kv.k, kv.v, kv.k_scales, kv.v_scales, batch.positions, batch.sequence, batch.block_table),
         TensorList(y));
  do_attention(y, q, kv, batch, params);
}

void CommandEncoder::gather_rows(const Tensor& y, const Tensor& x, const Tensor& rows) {
  check::gather_rows(y, x, rows);
  record("gather_rows", TensorList(x, rows), TensorList(y));
  do_gather_rows(y, x, rows);
}

void CommandEncoder::softcap(const Tensor& x, float cap) {
  check::softcap(x, cap);
  record("softcap", TensorList(x), TensorList(x));
  do_softcap(x, cap);
}

void CommandEncoder::scale(const Tensor& x, float factor) {
  require(x && x.dtype == DType::f32, "scale: x must be f32");
  record("scale", TensorList(x), TensorList(x));
  do_scale(x, factor);
}

void CommandEncoder::copy(const Tensor& y, const Tensor& x) {
  check::same("copy", y, x);
  record("copy", TensorList(x), TensorList(y));
  do_copy(y, x);
}

void CommandEncoder::sigmoid_mul(const Tensor& y, const Tensor& x, const Tensor& gate) {
  check::same("sigmoid_mul", y, x);
  check::same("sigmoid_mul", y, gate);
  record("sigmoid_mul", TensorList(x, gate), TensorList(y));
  do_sigmoid_mul(y, x, gate);
}

void CommandEncoder::per_layer_inputs(const Tensor& y, const Tensor& projected, const Tensor& embedded, const Tensor& w,
                                      float eps) {
  check::per_layer_inputs(y, projected, embedded, w);
  record("per_layer_inputs", TensorList(projected, embedded, w), TensorList(y));
  do_per_layer_inputs(y, projected, embedded, w, eps);
}

void CommandEncoder::sample(const SampleArgs& a) {
  check::sample(a);
  record("sample", TensorList(a.logits, a.rows, a.params, a.counts, a.bias_ids, a.bias, a.mask),
         TensorList(a.params, a.counts, a.ids, a.logprobs, a.logprob_ids));
  do_sample(a);
}

void CommandEncoder::advance(const Batch& batch, const Tensor& ids) {
  check::advance(batch, ids);
  record("advance", TensorList(ids, batch.positions), TensorList(batch.ids, batch.positions));
  do_advance(batch, ids);
}

// --- fused ops ----------------------------------------------------------------------------------
// `fused() ? do_x : CommandEncoder::do_x`: the second form is the decomposition, whatever the backend has.
// Only an op that runs as itself is recorded; a decomposition records its parts.

void CommandEncoder::linear_group(const Tensor& x, std::span<const LinearOut> outs) {
  require(!outs.empty() && outs.size() <= 4, "linear_group: ", outs.size(), " outputs, 1 to 4 are supported");
  TensorList reads(x), writes;
  for (const LinearOut& out : outs) {
    require(out.weight != nullptr, "linear_group: an output has no weight");
    check::linear("linear_group", out.y, x, *out.weight, out.bias);
    reads.add(*out.weight);
    reads.add(out.bias);
    writes.add(out.y);
  }
  if (!fused()) return CommandEncoder::do_linear_group(x, outs);
  if (has_fused(FusedOp::linear_group)) record("linear_group", reads, writes);
  do_linear_group(x, outs);
}

void CommandEncoder::do_linear_group(const Tensor& x, std::span<const LinearOut> outs) {
  for (const LinearOut& out : outs) linear(out.y, x, *out.weight, out.bias);
}

void CommandEncoder::linear_add(const Tensor& y, const Tensor& x, const Weight& w, const Tensor& bias) {
  check::linear("linear_add", y, x, w, bias);
  if (!fused()) return CommandEncoder::do_linear_add(y, x, w, bias);
  if (has_fused(FusedOp::linear_add)) record("linear_add", TensorList(x, w, bias, y), TensorList(y));
  do_linear_add(y, x, w, bias);
}

void CommandEncoder::do_linear_add(const Tensor& y, const Tensor& x, const Weight& w, const Tensor& bias) {
  const Tensor branch = scratch(DType::f32, y.shape);
  linear(branch, x, w, bias);
  add(y, y, branch);
}

void CommandEncoder::linear_add_norm(const Tensor& y, const Tensor& z, const Tensor& x, const Weight& w,
                                     const Tensor& bias, const Tensor& norm, float eps) {
  check::linear("linear_add_norm", y, x, w, bias);
  check::rms_norm(z, y, norm);
  if (!fused()) return CommandEncoder::do_linear_add_norm(y, z, x, w, bias, norm, eps);
  if (has_fused(FusedOp::linear_add_norm)) record("linear_add_norm", TensorList(x, w, bias, norm, y), TensorList(y, z));
  do_linear_add_norm(y, z, x, w, bias, norm, eps);
}

void CommandEncoder::do_linear_add_norm(const Tensor& y, const Tensor& z, const Tensor& x, const Weight& w,
                                        const Tensor& bias, const Tensor& norm, float eps) {
  linear_add(y, x, w, bias);
  rms_norm(z, y, norm, eps);
}

void CommandEncoder::linear_gated(const Tensor& y, const Tensor& x, const Weight& gate, const Weight& up,
                                  const Tensor& gate_bias, const Tensor& up_bias, Activation act) {
  check::linear("linear_gated", y, x, gate, gate_bias);
  check::linear("linear_gated", y, x, up, up_bias);
  if (!fused()) return CommandEncoder::do_linear_gated(y, x, gate, up, gate_bias, up_bias, act);
  if (has_fused(FusedOp::linear_gated))
    record("linear_gated", TensorList(x, gate, up, gate_bias, up_bias), TensorList(y));
  do_linear_gated(y, x, gate, up, gate_bias, up_bias, act);
}

void CommandEncoder::do_linear_gated(const Tensor& y, const Tensor& x, const Weight& gate, const Weight& up,
                                     const Tensor& gate_bias, const Tensor& up_bias, Activation act) {
  const Tensor g = scratch(DType::f32, y.shape);
  const Tensor u = scratch(DType::f32, y.shape);
  const LinearOut outs[] = {{g, &gate, gate_bias}, {u, &up, up_bias}};
  linear_group(x, outs);
  act_mul(y, g, u, act);
}

void CommandEncoder::norm_add(const Tensor& y, const Tensor& x, const Tensor& w, float eps) {
  check::rms_norm(y, x, w);
  if (!fused()) return CommandEncoder::do_norm_add(y, x, w, eps);
  if (has_fused(FusedOp::norm_add)) record("norm_add", TensorList(x, w, y), TensorList(y));
  do_norm_add(y, x, w, eps);
}

void CommandEncoder::do_norm_add(const Tensor& y, const Tensor& x, const Tensor& w, float eps) {
  const Tensor normed = scratch(DType::f32, x.shape);
  rms_norm(normed, x, w, eps);
  add(y, y, normed);
}

void CommandEncoder::norm_add_norm(const Tensor& y, const Tensor& z, const Tensor& x, const Tensor& w, const Tensor& w2,
                                   float eps, float factor) {
  check::rms_norm(y, x, w);
  check::rms_norm(z, y, w2);
  if (!fused()) return CommandEncoder::do_norm_add_norm(y, z, x, w, w2, eps, factor);
  if (has_fused(FusedOp::norm_add_norm)) record("norm_add_norm", TensorList(x, w, w2, y), TensorList(y, z));
  do_norm_add_norm(y, z, x, w, w2, eps, factor);
}

void CommandEncoder::do_norm_add_norm(const Tensor& y, const Tensor& z, const Tensor& x, const Tensor& w,
                                      const Tensor& w2, float eps, float factor) {
  norm_add(y, x, w, eps);
  if (factor != 1.0f) scale(y, factor);
  rms_norm(z, y, w2, eps);
}

void CommandEncoder::norm_group(const Tensor& x, std::span<const NormOut> outs, float eps) {
  require(!outs.empty() && outs.size() <= 3, "norm_group: ", outs.size(), " outputs, 1 to 3 are supported");
  TensorList reads(x), writes;
  for (const NormOut& out : outs) {
    check::rms_norm(out.y, x, out.w);
    require(out.y.buffer != x.buffer || out.y.offset != x.offset, "norm_group: an output must not be x");
    reads.add(out.w);
    writes.add(out.y);
  }
  if (!fused()) return CommandEncoder::do_norm_group(x, outs, eps);
  if (has_fused(FusedOp::norm_group)) record("norm_group", reads, writes);
  do_norm_group(x, outs, eps);
}

void CommandEncoder::do_norm_group(const Tensor& x, std::span<const NormOut> outs, float eps) {
  for (const NormOut& out : outs) rms_norm(out.y, x, out.w, eps);
}

void CommandEncoder::attention_gated(const Tensor& y, const Tensor& q, const Tensor& gate, const KvLayer& kv,
                                     const Batch& batch, const AttentionParams& params) {
  check::attention(y, q, kv, batch, params);
  check::same("attention_gated", y, gate);
  if (!fused()) return CommandEncoder::do_attention_gated(y, q, gate, kv, batch, params);
  if (has_fused(FusedOp::attention_gated))
    record(
        "attention_gated",
        TensorList(q, gate, kv.k, kv.v, kv.k_scales, kv.v_scales, batch.positions, batch.sequence, batch.block_table),
        TensorList(y));
  do_attention_gated(y, q, gate, kv, batch, params);
}

void CommandEncoder::do_attention_gated(const Tensor& y, const Tensor& q, const Tensor& gate, const KvLayer& kv,
                                        const Batch& batch, const AttentionParams& params) {
  attention(y, q, kv, batch, params);
  sigmoid_mul(y, y, gate);
}

void CommandEncoder::qk_rope_append(const Tensor& q, const Tensor& k, const Tensor& v, const QkNorm& norm,
                                    const Rope& rope, const KvLayer& kv, const Batch& batch) {
  check::qk_rope_append(q, k, v, norm, rope, kv, batch);
  if (!fused()) return CommandEncoder::do_qk_rope_append(q, k, v, norm, rope, kv, batch);
  if (has_fused(FusedOp::qk_rope_append)) {
    TensorList writes(q);
    if (k)
      for (const Tensor* t : {&k, &v, &kv.k, &kv.v, &kv.k_scales, &kv.v_scales}) writes.add(*t);
    record(
        "qk_rope_append",
        TensorList(q, k, v, norm.q, norm.k, norm.v, rope.inv_freq, batch.positions, batch.sequence, batch.block_table),
        writes);
  }
  do_qk_rope_append(q, k, v, norm, rope, kv, batch);
}

void CommandEncoder::do_qk_rope_append(const Tensor& q, const Tensor& k, const Tensor& v, const QkNorm& norm,
                                       const Rope& rope, const KvLayer& kv, const Batch& batch) {
  if (norm.q) rms_norm(q, q, norm.q, norm.eps);
  this->rope(q, rope, batch.positions);
  if (!k) return;
  Tensor value = v;
  if (!value) {
    value = scratch(DType::f32, k.shape);
    copy(value, k);
  }
  if (norm.k) rms_norm(k, k, norm.k, norm.eps);
  if (norm.v) rms_norm(value, value, norm.v, norm.eps);
  this->rope(k, rope, batch.positions);
  kv_append(kv, k, value, batch);
}

}  // namespace saragossa
