// Mixtures of experts on Metal: the router, and experts of few rows (moe.metal).

#include "metal/moe.h"

#include <algorithm>
#include <bit>

#include "metal/norm.h"

namespace saragossa::metal {
namespace {

constexpr Kernel kRoute{"moe", "route"};
constexpr Kernel kGated{"moe", "moe_gated"};
constexpr Kernel kDown{"moe", "moe_down"};

// Of moe.metal.
constexpr int64_t kSimdgroups = 2;
constexpr int64_t kOutputs = 4;
constexpr int64_t kMostRows = 8;

constexpr int64_t kBlockRows = 512;  // of a dispatch over many rows: bounds the scratch

int64_t address_of(const Tensor& t) { return static_cast<const MetalBuffer&>(*t.buffer).offset() + t.offset; }

void expect_limits(const char* op, int64_t top_k, int64_t count) {
  require(count <= SG_MOE_MOST_EXPERTS && top_k <= SG_MOE_MOST_CHOSEN, "metal: ", op, ": ", top_k, " of ", count,
          " experts, at most ", SG_MOE_MOST_CHOSEN, " of ", SG_MOE_MOST_EXPERTS,
          " are supported; use the CPU device (--device cpu)");
}

/// Elements must be read one by one: see is_ragged of linear.h. Where both in a dispatch and all rows of h are
/// whole, so are their parts.
bool is_ragged(const MoeJob& job, const MoeWeights& weights) {
  bool whole = address_of(job.x) % 16 == 0 && job.x.shape[1] % 4 == 0;
  bool codes = true;
  const auto see = [&](const Weight& w) {
    whole = whole && w.in % 8 == 0;
    codes = codes && address_of(w.data) % 8 == 0;
  };
  for (int i = 0; i < 2; ++i) {
    if (weights.routed[i]) see(weights.routed[i]->weight);
    if (weights.shared[i]) see(*weights.shared[i]);
  }
  require(codes || !weights.any().quantised(),
          "metal: a quantised expert weight stands at no multiple of its alignment");
  return !whole || !codes;
}

/// moe_gated over the weights of one format each, into y [T, width].
void launch_gated(MetalEncoder& encoder, const MoeJob& job, const MoeWeights& weights) {
  if (weights.parts() == SG_MOE_BOTH && !same_codes(weights.routed[0]->weight, *weights.shared[0])) {
    launch_gated(encoder, job, {{weights.routed[0], weights.routed[1]}, {}});
    return launch_gated(encoder, job, {{}, {weights.shared[0], weights.shared[1]}});
  }
  const Experts& e = job.experts;
  const auto rows = std::min(kMostRows, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(job.rows()))));
  MoeParams params = moe_params(job, weights, false);
  const int64_t tile = kSimdgroups * (weights.pair() ? kOutputs / 2 : kOutputs);
  const int64_t tiles = (e.intermediate + tile - 1) / tile, shared_tiles = (e.shared_intermediate + tile - 1) / tile;
  const int64_t routed = weights.routed[0] ? tiles * job.rows() * e.top_k : 0;
  params.tiles = u32(tiles);
  params.shared_tiles = u32(shared_tiles);
  params.first_shared = u32(routed);
  Launch launch(encoder, kGated, moe_constants(job, weights, weights.pair() ? SG_GATED : SG_STORE, rows));
  bind_moe(launch, job, weights, params);
  if (weights.routed[0]) launch.buffer(SG_MOE_IDS, job.routes.ids);
  const int64_t groups = routed + (weights.shared[0] ? shared_tiles * ((job.rows() + rows - 1) / rows) : 0);
  launch.groups(groups, 1, 1, 32 * kSimdgroups);
}

void launch_down(MetalEncoder& encoder, const MoeJob& job, const MoeWeights& weights, uint32_t epilogue) {
  if (weights.parts() == SG_MOE_BOTH && !same_codes(weights.routed[0]->weight, *weights.shared[0])) {
    launch_down(encoder, job, {{}, {weights.shared[0]}}, epilogue == SG_STORE ? SG_STORE : SG_ADD);
    encoder.barrier();
    return launch_down(encoder, job, {{weights.routed[0]}, {}}, epilogue == SG_STORE ? SG_ADD : epilogue);
  }
  Launch launch(encoder, kDown, moe_constants(job, weights, epilogue, 1));
  bind_moe(launch, job, weights, moe_params(job, weights, true));
  if (weights.routed[0]) launch.buffer(SG_MOE_IDS, job.routes.ids).buffer(SG_MOE_WEIGHTS, job.routes.weights);
  if (weights.shared[0]) launch.buffer(SG_MOE_GATE, job.gate);
  if (epilogue == SG_ADD_SQUARES) launch.buffer(SG_MOE_SQUARES, job.squares);
  // As few simdgroups as take all experts in the fewest turns.
  const int64_t experts = (weights.routed[0] ? job.experts.top_k : 0) + (weights.shared[0] ? 1 : 0);
  const int64_t turns = (experts + 7) / 8;
  launch.groups((job.y.shape[1] + kOutputs - 1) / kOutputs, job.rows(), 1, 32 * ((experts + turns - 1) / turns));
}

void run_gated(MetalEncoder& encoder, const MoeJob& job) {
  const Experts& e = job.experts;
  const bool shared = e.shared_intermediate > 0;
  const bool pairs = same_codes(e.gate.weight, e.up.weight) && (!shared || same_codes(e.shared_gate, e.shared_up));
  if (pairs && sorts_experts(encoder.context(), job.rows())) return run_sorted_gated(encoder, job);
  const Weight* gate = shared ? &e.shared_gate : nullptr;
  const Weight* up = shared ? &e.shared_up : nullptr;
  if (pairs) return launch_gated(encoder, job, {{&e.gate, &e.up}, {gate, up}});
  // One matrix at a time.
  const OpScratch parts(encoder, {{DType::f32, job.y.shape}, {DType::f32, job.y.shape}});
  MoeJob part = job;
  part.y = parts[0];
  launch_gated(encoder, part, {{&e.gate}, {gate}});
  part.y = parts[1];
  launch_gated(encoder, part, {{&e.up}, {up}});
  encoder.barrier();
  encoder.activate(job.y, parts[0], parts[1], e.activation);
}

void run_down(MetalEncoder& encoder, const MoeJob& job) {
  if (sorts_experts(encoder.context(), job.rows())) return run_sorted_down(encoder, job);
  const Experts& e = job.experts;
  launch_down(encoder, job, {{&e.down}, {e.shared_intermediate > 0 ? &e.shared_down : nullptr}}, job.epilogue);
}

/// In blocks of rows, so that neither a command buffer nor the scratch holds more than its bound; the few of a decoded
/// token stay whole.
template <class Run>
void run_in_bound(MetalEncoder& encoder, const MoeJob& job, int matrices, const Run& run) {
  if (job.rows() == 0) return;
  if (job.rows() <= encoder.context().tuning.matvec_rows) return run(encoder, job);
  const Experts& e = job.experts;
  const int64_t work = matrices * e.width() * e.gate.weight.in;
  const int64_t most = std::min(kBlockRows, encoder.rows_in_bound(work));
  for (int64_t first = 0; first < job.rows(); first += most) {
    const int64_t rows = std::min(most, job.rows() - first);
    MoeJob part = job;
    part.x = job.x.slice(first, rows);
    part.y = job.y.slice(first, rows);
    part.routes.ids = job.routes.ids.slice(first, rows);
    if (job.routes.weights) part.routes.weights = job.routes.weights.slice(first, rows);
    if (job.gate) part.gate = job.gate.slice(first, rows);
    encoder.work(rows * work);
    run(encoder, part);
  }
}

}  // namespace

bool same_codes(const Weight& a, const Weight& b) {
  return a.bits == b.bits && a.group == b.group && a.format == b.format && a.stored() == b.stored();
}

Constants moe_constants(const MoeJob& job, const MoeWeights& weights, uint32_t epilogue, int64_t rows) {
  const Weight& w = weights.any();
  const auto shift = w.quantised() ? static_cast<uint32_t>(std::countr_zero(static_cast<unsigned>(w.group))) : 0u;
  return {{static_cast<uint32_t>(w.bits), shift, shared_value(w.stored()), u32(rows), weights.parts(),
           weights.shared[0] && job.gate ? 1u : 0u, epilogue, is_ragged(job, weights) ? 1u : 0u},
          8};
}

MoeParams moe_params(const MoeJob& job, const MoeWeights& weights, bool down) {
  const Experts& e = job.experts;
  const int64_t hidden = down ? job.y.shape[1] : job.x.shape[1];
  MoeParams p{};
  p.rows = u32(job.rows());
  p.chosen = u32(e.top_k);
  p.experts = u32(e.count);
  p.in = u32(down ? e.intermediate : hidden);
  p.out = u32(down ? hidden : e.intermediate);
  p.shared_in = u32(down ? e.shared_intermediate : hidden);
  p.shared_out = u32(down ? hidden : e.shared_intermediate);
  p.width = u32(e.width());
  p.activation = shared_value(e.activation);
  for (int i = 0; i < 2; ++i) {
    if (!weights.routed[i]) continue;
    u32(weights.routed[i]->weight.out);  // kernels number rows of a weight by 32 bits
    (i == 0 ? p.stride0 : p.stride1) = u32(weights.routed[i]->stride);
    (i == 0 ? p.offset0 : p.offset1) = u32(weights.routed[i]->offset);
  }
  u32(job.rows() * std::max(hidden, e.width()));  // and values of x
  return p;
}

void bind_moe(Launch& launch, const MoeJob& job, const MoeWeights& weights, const MoeParams& params) {
  const auto bind = [&](int slot, const Weight& w) {
    launch.buffer(slot, w.data).buffer(slot + 1, w.scales).buffer(slot + 2, w.biases);
  };
  for (int i = 0; i < 2; ++i) {
    if (weights.routed[i]) bind(SG_MOE_CODES0 + i * SG_MOE_SLOTS, weights.routed[i]->weight);
    if (weights.shared[i]) bind(SG_MOE_SHARED_CODES0 + i * SG_MOE_SLOTS, *weights.shared[i]);
  }
  launch.buffer(SG_MOE_Y, job.y).buffer(SG_MOE_X, job.x).params(SG_MOE_PARAMS, params);
}

void MetalEncoder::do_route(const Routes& routes, const Tensor& logits, bool renormalize, const Tensor& expert_scale) {
  const int64_t top_k = routes.ids.shape[1];
  expect_limits("route", top_k, logits.shape[1]);
  const RouteParams params{u32(logits.shape[1]), u32(top_k), renormalize ? 1u : 0u, expert_scale ? 1u : 0u};
  Launch(*this, kRoute, {{}, 8})
      .buffer(SG_ROUTE_IDS, routes.ids)
      .buffer(SG_ROUTE_WEIGHTS, routes.weights)
      .buffer(SG_ROUTE_LOGITS, logits)
      .buffer(SG_ROUTE_SCALE, expert_scale ? expert_scale : logits)
      .params(SG_ROUTE_PARAMS, params)
      .groups(logits.shape[0], 1, 1, 32);
}

void MetalEncoder::do_moe_gated(const Tensor& h, const Tensor& x, const Tensor& ids, const Experts& e) {
  expect_limits("moe_gated", e.top_k, e.count);
  run_in_bound(*this, {e, h, x, {ids, {}}, {}}, 2, run_gated);
}

void MetalEncoder::do_moe_down(const Tensor& y, const Tensor& h, const Routes& routes, const Tensor& shared,
                               const Experts& e, bool add) {
  expect_limits("moe_down", e.top_k, e.count);
  run_in_bound(*this, {e, y, h, routes, shared, add ? uint32_t{SG_ADD} : uint32_t{SG_STORE}}, 1, run_down);
}

void MetalEncoder::do_moe_down_norm(const Tensor& y, const Tensor& z, const Tensor& h, const Routes& routes,
                                    const Tensor& shared, const Experts& e, const Tensor& norm, float eps) {
  const int64_t rows = y.shape[0];
  if (rows == 0 || rows > context_->tuning.matvec_rows || !context_->switches.metal_statistics) {
    do_moe_down(y, h, routes, shared, e, true);
    barrier();
    return do_rms_norm(z, y, norm, eps);
  }
  expect_limits("moe_down_norm", e.top_k, e.count);
  const OpScratch squares(*this, {{DType::f32, {rows, (y.shape[1] + 3) / 4}}});
  run_down(*this, {e, y, h, routes, shared, SG_ADD_SQUARES, squares[0]});
  barrier();
  launch_norm_split(*this, z, y, squares[0], norm, eps);
}

}  // namespace saragossa::metal
