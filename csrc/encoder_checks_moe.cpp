// Checks of the ops of mixtures of experts.

#include "encoder_checks.h"

namespace saragossa::check {
namespace {

/// rows of each expert within the weight.
void expect_experts(const char* op, const char* what, const ExpertWeight& e, int64_t count, int64_t rows, int64_t in) {
  check_weight(e.weight, op);
  require(e.offset >= 0 && e.offset + rows <= e.stride && e.weight.out == count * e.stride && e.weight.in == in, op,
          ": ", what, " is [", e.weight.out, ", ", e.weight.in, "] with ", e.stride, " rows an expert from ", e.offset,
          ", expected ", count, " experts of [", rows, ", ", in, "]");
}

void expect_weight(const char* op, const char* what, const Weight& w, int64_t out, int64_t in) {
  check_weight(w, op);
  require(w.out == out && w.in == in, op, ": ", what, " is [", w.out, ", ", w.in, "], expected [", out, ", ", in, "]");
}

void expect_counts(const char* op, const Experts& e) {
  require(e.count > 0 && e.top_k > 0 && e.top_k <= e.count && e.intermediate > 0 && e.shared_intermediate >= 0, op,
          ": ", e.top_k, " of ", e.count, " experts of ", e.intermediate);
}

void expect_routes(const char* op, const Routes& routes, int64_t rows, int64_t top_k) {
  expect(op, "ids", routes.ids, DType::i32, {rows, top_k});
  expect(op, "weights", routes.weights, DType::f32, {rows, top_k});
}

}  // namespace

void route(const Routes& routes, const Tensor& logits, const Tensor& expert_scale) {
  expect_f32("route", "logits", logits, 2);
  require(routes.ids && routes.ids.shape.rank() == 2, "route: no ids");
  const int64_t top_k = routes.ids.shape[1], count = logits.shape[1];
  require(top_k > 0 && top_k <= count, "route: ", top_k, " of ", count, " experts");
  expect_routes("route", routes, logits.shape[0], top_k);
  if (expert_scale) expect("route", "expert_scale", expert_scale, DType::f32, {count});
}

void moe_gated(const Tensor& h, const Tensor& x, const Tensor& ids, const Experts& e) {
  const char* op = "moe_gated";
  expect_counts(op, e);
  expect_f32(op, "x", x, 2);
  const int64_t rows = x.shape[0], hidden = x.shape[1];
  expect(op, "h", h, DType::f32, {rows, e.width()});
  expect(op, "ids", ids, DType::i32, {rows, e.top_k});
  expect_experts(op, "gate", e.gate, e.count, e.intermediate, hidden);
  expect_experts(op, "up", e.up, e.count, e.intermediate, hidden);
  if (e.shared_intermediate == 0) return;
  expect_weight(op, "shared_gate", e.shared_gate, e.shared_intermediate, hidden);
  expect_weight(op, "shared_up", e.shared_up, e.shared_intermediate, hidden);
}

void moe_down(const Tensor& y, const Tensor& h, const Routes& routes, const Tensor& shared, const Experts& e) {
  const char* op = "moe_down";
  expect_counts(op, e);
  expect_f32(op, "y", y, 2);
  const int64_t rows = y.shape[0], hidden = y.shape[1];
  expect(op, "h", h, DType::f32, {rows, e.width()});
  expect_routes(op, routes, rows, e.top_k);
  expect_experts(op, "down", e.down, e.count, hidden, e.intermediate);
  if (shared) {
    require(e.shared_intermediate > 0, op, ": a gate of a shared expert that is not there");
    expect(op, "shared", shared, DType::f32, {rows, 1});
  }
  if (e.shared_intermediate > 0) expect_weight(op, "shared_down", e.shared_down, hidden, e.shared_intermediate);
}

}  // namespace saragossa::check
