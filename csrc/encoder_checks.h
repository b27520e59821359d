#pragma once
// Shape and dtype checks of the op contract: the same refusals, with the same words, on every device.

#include "encoder.h"

namespace saragossa::check {

/// A tensor of this dtype and shape.
void expect(const char* op, const char* what, const Tensor& t, DType dtype, const Shape& shape);
void expect_f32(const char* op, const char* what, const Tensor& t, int rank);
/// Positions, sequences, block table and runs of a batch with so many rows.
void expect_batch(const char* op, const Batch& b, int64_t rows);

void same(const char* op, const Tensor& y, const Tensor& x);
void embed(const Tensor& y, const Weight& table, const Tensor& ids);
void rms_norm(const Tensor& y, const Tensor& x, const Tensor& w);
void linear(const char* op, const Tensor& y, const Tensor& x, const Weight& w, const Tensor& bias);
void rope(const Tensor& x, const Rope& rope, const Tensor& positions);
void qk_rope_append(const Tensor& q, const Tensor& k, const Tensor& v, const QkNorm& norm, const Rope& rope,
                    const KvLayer& kv, const Batch& batch);
void kv_append(const KvLayer& kv, const Tensor& k, const Tensor& v, const Batch& batch);
void attention(const Tensor& y, const Tensor& q, const KvLayer& kv, const Batch& batch, const AttentionParams& params);
void gather_rows(const Tensor& y, const Tensor& x, const Tensor& rows);
void softcap(const Tensor& x, float cap);
void per_layer_inputs(const Tensor& y, const Tensor& projected, const Tensor& embedded, const Tensor& w);
void causal_conv(const Tensor& y, const Tensor& x, const Tensor& w, const RecurrentLayer& state, const Batch& batch);
void qk_l2_norm(const Tensor& x, const DeltaHeads& heads);
void delta_rule(const Tensor& y, const Tensor& qkv, const DeltaGates& gates, const DeltaHeads& heads,
                const RecurrentLayer& state, const Batch& batch);
void gated_norm(const Tensor& x, const Tensor& z, const Tensor& w);
void route(const Routes& routes, const Tensor& logits, const Tensor& expert_scale);
void moe_gated(const Tensor& h, const Tensor& x, const Tensor& ids, const Experts& experts);
void moe_down(const Tensor& y, const Tensor& h, const Routes& routes, const Tensor& shared, const Experts& experts);
void sample(const SampleArgs& args);
void advance(const Batch& batch, const Tensor& ids);

}  // namespace saragossa::check
