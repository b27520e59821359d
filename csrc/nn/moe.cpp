#include "nn/moe.h"

namespace saragossa {

Moe::Moe(WeightLoader& weights, const MoeSpec& spec, int64_t hidden, const std::string& at)
    : spec_(spec), hidden_(hidden) {
  const int64_t count = spec.experts, inner = spec.intermediate, shared = spec.shared_intermediate;
  router_ = weights.matrix(at + "router", count, hidden);
  if (spec.router_norm) {
    router_norm_ = weights.vector(at + "router_norm", hidden);
    router_scale_ = weights.vector(at + "router_scale", count);
  }
  experts_ = {count, spec.top_k, inner, spec.activation, {}, {}, {}, shared, {}, {}, {}};
  if (spec.fused_gate_up) {
    const Weight both = weights.matrix(at + "experts_gate_up", count * 2 * inner, hidden);
    experts_.gate = {both, 2 * inner, 0};
    experts_.up = {both, 2 * inner, inner};
  } else {
    experts_.gate = {weights.matrix(at + "experts_gate", count * inner, hidden), inner, 0};
    experts_.up = {weights.matrix(at + "experts_up", count * inner, hidden), inner, 0};
  }
  experts_.down = {weights.matrix(at + "experts_down", count * hidden, inner), hidden, 0};
  if (shared == 0) return;
  experts_.shared_gate = weights.matrix(at + "shared_gate_proj", shared, hidden);
  experts_.shared_up = weights.matrix(at + "shared_up", shared, hidden);
  experts_.shared_down = weights.matrix(at + "shared_down", hidden, shared);
  if (spec.shared_gate) shared_gate_ = weights.matrix(at + "shared_gate", 1, hidden);
}

Routes Moe::route(CommandEncoder& enc, const Tensor& router_in, const LayerScratch& s) const {
  const int64_t rows = router_in.shape[0];
  const Tensor logits = rows_view(s.router, rows, spec_.experts);
  const LinearOut outs[] = {{logits, &router_, {}},
                            {spec_.shared_gate ? rows_view(s.shared, rows, 1) : Tensor{}, &shared_gate_, {}}};
  enc.linear_group(router_in, std::span(outs, spec_.shared_gate ? 2 : 1));
  const Routes routes{rows_view(s.routes, rows, spec_.top_k), rows_view(s.weights, rows, spec_.top_k)};
  enc.route(routes, logits, spec_.renormalize, router_scale_);
  return routes;
}

void Moe::add(CommandEncoder& enc, const Tensor& x, const Tensor& next_norm, float eps, const LayerScratch& s) const {
  const int64_t rows = x.shape[0];
  const Tensor normed = rows_view(s.normed, rows, hidden_), h = rows_view(s.gated, rows, spec_.width());
  const Routes routes = route(enc, normed, s);
  enc.moe_gated(h, normed, routes.ids, experts_);
  const Tensor shared = spec_.shared_gate ? rows_view(s.shared, rows, 1) : Tensor{};
  enc.moe_down_norm(x, normed, h, routes, shared, experts_, next_norm, eps);
}

void Moe::branch(CommandEncoder& enc, const Tensor& x, const Tensor& moe_norm, float eps, const LayerScratch& s) const {
  const int64_t rows = x.shape[0];
  const Tensor normed = rows_view(s.moe_normed, rows, hidden_), own = rows_view(s.router_normed, rows, hidden_);
  const NormOut outs[] = {{normed, moe_norm}, {own, router_norm_}};
  enc.norm_group(x, outs, eps);
  const Routes routes = route(enc, own, s);
  const Tensor h = rows_view(s.gated, rows, spec_.width());
  enc.moe_gated(h, normed, routes.ids, experts_);
  const Tensor shared = spec_.shared_gate ? rows_view(s.shared, rows, 1) : Tensor{};
  enc.moe_down(rows_view(s.branch, rows, hidden_), h, routes, shared, experts_, false);
}

}  // namespace saragossa
