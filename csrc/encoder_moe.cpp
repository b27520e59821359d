// The ops of mixtures of experts: checks, records, decompositions.

#include "encoder.h"
#include "encoder_checks.h"

namespace saragossa {
namespace {

TensorList down_reads(const Tensor& h, const Routes& routes, const Tensor& shared, const Experts& e) {
  TensorList reads(h, routes.ids, routes.weights, shared, e.down.weight);
  if (e.shared_intermediate > 0) reads.add(e.shared_down);
  return reads;
}

}  // namespace

void CommandEncoder::route(const Routes& routes, const Tensor& logits, bool renormalize, const Tensor& expert_scale) {
  check::route(routes, logits, expert_scale);
  record("route", TensorList(logits, expert_scale), TensorList(routes.ids, routes.weights));
  do_route(routes, logits, renormalize, expert_scale);
}

void CommandEncoder::moe_gated(const Tensor& h, const Tensor& x, const Tensor& ids, const Experts& e) {
  check::moe_gated(h, x, ids, e);
  TensorList reads(x, ids, e.gate.weight, e.up.weight);
  if (e.shared_intermediate > 0) reads.add(e.shared_gate), reads.add(e.shared_up);
  record("moe_gated", reads, TensorList(h));
  do_moe_gated(h, x, ids, e);
}

void CommandEncoder::moe_down(const Tensor& y, const Tensor& h, const Routes& routes, const Tensor& shared,
                              const Experts& e, bool add) {
  check::moe_down(y, h, routes, shared, e);
  TensorList reads = down_reads(h, routes, shared, e);
  if (add) reads.add(y);
  record("moe_down", reads, TensorList(y));
  do_moe_down(y, h, routes, shared, e, add);
}

void CommandEncoder::moe_down_norm(const Tensor& y, const Tensor& z, const Tensor& h, const Routes& routes,
                                   const Tensor& shared, const Experts& e, const Tensor& norm, float eps) {
  check::moe_down(y, h, routes, shared, e);
  check::rms_norm(z, y, norm);
  if (!fused()) return CommandEncoder::do_moe_down_norm(y, z, h, routes, shared, e, norm, eps);
  if (has_fused(FusedOp::moe_down_norm)) {
    TensorList reads = down_reads(h, routes, shared, e);
    reads.add(y);
    reads.add(norm);
    record("moe_down_norm", reads, TensorList(y, z));
  }
  do_moe_down_norm(y, z, h, routes, shared, e, norm, eps);
}

void CommandEncoder::do_moe_down_norm(const Tensor& y, const Tensor& z, const Tensor& h, const Routes& routes,
                                      const Tensor& shared, const Experts& e, const Tensor& norm, float eps) {
  moe_down(y, h, routes, shared, e, true);
  rms_norm(z, y, norm, eps);
}

}  // namespace saragossa
