// Checks of the gated delta net's ops.

#include "encoder_checks.h"

namespace saragossa::check {
namespace {

void expect_recurrent(const char* op, const Batch& b, int64_t rows) {
  expect_batch(op, b, rows);
  require(!b.runs.empty(), op, ": batch.runs must be told");
  expect(op, "batch.run_starts", b.run_starts, DType::i32, {static_cast<int64_t>(b.runs.size()) + 1});
  expect(op, "batch.state_in", b.state_in, DType::i32, {b.block_table.shape[0]});
  expect(op, "batch.state_out", b.state_out, DType::i32, {rows});
}

void expect_heads(const char* op, const DeltaHeads& h) {
  require(h.key_heads > 0 && h.key_dim > 0 && h.value_dim > 0 && h.value_heads > 0 && h.value_heads % h.key_heads == 0,
          op, ": ", h.value_heads, " value heads of ", h.value_dim, " do not go with ", h.key_heads, " key heads of ",
          h.key_dim);
}

}  // namespace

void causal_conv(const Tensor& y, const Tensor& x, const Tensor& w, const RecurrentLayer& state, const Batch& batch) {
  const char* op = "causal_conv";
  expect_f32(op, "x", x, 2);
  const int64_t rows = x.shape[0], channels = x.shape[1];
  expect(op, "y", y, DType::f32, x.shape);
  require(y.buffer != x.buffer || y.offset != x.offset, op, ": y must not be x");
  expect_f32(op, "w", w, 2);
  require(w.shape[0] == channels && w.shape[1] >= 1 && w.shape[1] <= kMostConvWidth, op, ": w is ", w.shape,
          ", expected ", channels, " channels, 1 to ", kMostConvWidth, " inputs of each");
  expect_f32(op, "state.conv", state.conv, 3);
  expect(op, "state.conv", state.conv, DType::f32, {state.conv.shape[0], w.shape[1] - 1, channels});
  expect_recurrent(op, batch, rows);
}

void qk_l2_norm(const Tensor& x, const DeltaHeads& heads) {
  expect_heads("qk_l2_norm", heads);
  expect_f32("qk_l2_norm", "x", x, 2);
  expect("qk_l2_norm", "x", x, DType::f32, {x.shape[0], heads.channels()});
}

void delta_rule(const Tensor& y, const Tensor& qkv, const DeltaGates& gates, const DeltaHeads& heads,
                const RecurrentLayer& state, const Batch& batch) {
  const char* op = "delta_rule";
  expect_heads(op, heads);
  expect_f32(op, "qkv", qkv, 2);
  const int64_t rows = qkv.shape[0];
  expect(op, "qkv", qkv, DType::f32, {rows, heads.channels()});
  expect(op, "y", y, DType::f32, {rows, heads.values()});
  expect(op, "a", gates.a, DType::f32, {rows, heads.value_heads});
  expect(op, "b", gates.b, DType::f32, {rows, heads.value_heads});
  expect(op, "a_log", gates.a_log, DType::f32, {heads.value_heads});
  expect(op, "dt_bias", gates.dt_bias, DType::f32, {heads.value_heads});
  expect_f32(op, "state.delta", state.delta, 4);
  expect(op, "state.delta", state.delta, DType::f32,
         {state.delta.shape[0], heads.value_heads, heads.value_dim, heads.key_dim});
  expect_recurrent(op, batch, rows);
}

void gated_norm(const Tensor& x, const Tensor& z, const Tensor& w) {
  same("gated_norm", x, z);
  expect_f32("gated_norm", "x", x, 2);
  expect_f32("gated_norm", "w", w, 1);
  require(x.shape[1] % w.shape[0] == 0, "gated_norm: rows of ", x.shape[1], " are no heads of ", w.shape[0]);
}

}  // namespace saragossa::check
