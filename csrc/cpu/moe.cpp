// Mixtures of experts on the CPU: the router, and the calls of the experts' ops.

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/cpu_encoder.h"

namespace saragossa::cpu {
namespace {

/// One row: ids of the top_k best in descending order, equal ones by index. False: there is a NaN.
bool best_of(const float* row, int64_t n, int32_t* id, int64_t top_k) {
  int64_t have = 0;
  for (int64_t e = 0; e < n; ++e) {
    if (std::isnan(row[e])) return false;
    if (have == top_k && !(row[e] > row[id[top_k - 1]])) continue;
    int64_t at = have < top_k ? have++ : top_k - 1;
    for (; at > 0 && row[e] > row[id[at - 1]]; --at) id[at] = id[at - 1];
    id[at] = static_cast<int32_t>(e);
  }
  return true;
}

void route_row(const float* row, int64_t n, int32_t* id, float* weight, int64_t top_k, bool renormalize,
               const float* scale) {
  if (!best_of(row, n, id, top_k)) {
    for (int64_t k = 0; k < top_k; ++k) id[k] = static_cast<int32_t>(k);
    std::fill_n(weight, top_k, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  const float most = row[id[0]];
  float sum = 0.0f, chosen = 0.0f;
  for (int64_t e = 0; e < n; ++e) sum += std::exp(row[e] - most);
  for (int64_t k = 0; k < top_k; ++k) {
    weight[k] = std::exp(row[id[k]] - most) / sum;
    chosen += weight[k];
  }
  for (int64_t k = 0; k < top_k; ++k) {
    if (renormalize) weight[k] /= chosen;
    if (scale) weight[k] *= scale[id[k]];
  }
}

void set_call(MoeCall& call, const Tensor& ids, const Experts& e, int64_t hidden) {
  call.ids = raw_data<int32_t>(ids);
  call.rows = ids.shape[0];
  call.hidden = hidden;
  call.count = e.count;
  call.top_k = e.top_k;
  call.inner = e.intermediate;
  call.shared = e.shared_intermediate;
}

}  // namespace

void CpuEncoder::do_route(const Routes& routes, const Tensor& logits, bool renormalize, const Tensor& expert_scale) {
  push([ids = raw_data<int32_t>(routes.ids), weights = raw_data<float>(routes.weights), x = raw_data<float>(logits),
        scale = expert_scale ? raw_data<float>(expert_scale) : nullptr, rows = logits.shape[0], n = logits.shape[1],
        top_k = routes.ids.shape[1], renormalize](Executor& ex) {
    ex.rows(rows, 4 * n, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        route_row(x + t * n, n, ids + t * top_k, weights + t * top_k, top_k, renormalize, scale);
    });
  });
}

void CpuEncoder::do_moe_gated(const Tensor& h, const Tensor& x, const Tensor& ids, const Experts& e) {
  MoeGated call;
  set_call(call, ids, e, x.shape[1]);
  call.h = raw_data<float>(h);
  call.x = raw_data<float>(x);
  call.act = e.activation;
  call.gate = {e.gate, e.intermediate};
  call.up = {e.up, e.intermediate};
  if (e.shared_intermediate > 0) {
    call.shared_gate = matrix_of(e.shared_gate);
    call.shared_up = matrix_of(e.shared_up);
  }
  if (device().switches().cpu_fetch_ahead && e.down.weight.data) call.down = {e.down, x.shape[1]};
  push([call](Executor& ex) { ex.moe.gated(call); });
}

void CpuEncoder::do_moe_down(const Tensor& y, const Tensor& h, const Routes& routes, const Tensor& shared,
                             const Experts& e, bool add) {
  struct Run {
    MoeDown call;
    LinearJob chain;  // stands where a linear would: what is fetched ahead goes by it
    void operator()(Executor& ex) {
      call.next = chain.next;
      ex.moe.down(call);
    }
  };
  Run run;
  MoeDown& call = run.call;
  set_call(call, routes.ids, e, y.shape[1]);
  call.y = raw_data<float>(y);
  call.h = raw_data<float>(h);
  call.weights = raw_data<float>(routes.weights);
  call.gate = shared ? raw_data<float>(shared) : nullptr;
  call.add = add;
  call.down = {e.down, y.shape[1]};
  if (e.shared_intermediate > 0) call.shared_down = matrix_of(e.shared_down);
  run.chain.n_outs = 0;  // the linear in front of it cannot know which experts come
  link(resources_->commands.push(run).chain);
}

}  // namespace saragossa::cpu
