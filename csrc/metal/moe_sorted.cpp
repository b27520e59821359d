// Mixtures of experts on Metal, many rows: moe_sorted.metal.

#include <algorithm>

#include "metal/moe.h"

namespace saragossa::metal {
namespace {

constexpr Kernel kSort{"moe_sorted", "moe_sort"};
constexpr Kernel kMatmul{"moe_sorted", "moe_matmul"};
constexpr Kernel kReduce{"moe_sorted", "moe_reduce"};

// Of moe_sorted.metal.
constexpr int64_t kOutputs = 64;
constexpr int64_t kPitch = 36;
constexpr int64_t kThreads = 128;
constexpr int64_t kSortThreads = 256;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t places_of(const MoeJob& job) { return job.rows() * job.experts.top_k; }

/// Rows of a tile: about what an expert has.
int64_t tile_rows(const MoeJob& job) {
  const int64_t each = places_of(job) / job.experts.count;
  return each <= 16 ? 16 : each <= 32 ? 32 : 64;
}

int64_t most_tiles(const MoeJob& job) {
  return places_of(job) / tile_rows(job) + std::min(job.experts.count, places_of(job));
}

/// Places by expert, and their tiles.
class Sorted {
 public:
  Sorted(MetalEncoder& encoder, const MoeJob& job)
      : scratch_(encoder, {{DType::u32, {places_of(job)}}, {DType::u32, {3 * most_tiles(job)}}}) {
    Launch launch(encoder, kSort, {{}, 8});
    launch.buffer(SG_SORT_IDS, job.routes.ids)
        .buffer(SG_SORT_ORDER, order())
        .buffer(SG_SORT_TILES, tiles())
        .params(SG_SORT_PARAMS,
                SortParams{u32(places_of(job)), u32(job.experts.count), u32(tile_rows(job)), u32(most_tiles(job))})
        .groups(1, 1, 1, std::min(kSortThreads, launch.max_threads()));
    encoder.barrier();
  }
  const Tensor& order() const { return scratch_[0]; }
  const Tensor& tiles() const { return scratch_[1]; }

 private:
  OpScratch scratch_;
};

void launch_matmul(MetalEncoder& encoder, const MoeJob& job, const MoeWeights& weights, const Sorted& sorted) {
  if (weights.parts() == SG_MOE_BOTH && !same_codes(weights.routed[0]->weight, *weights.shared[0])) {
    launch_matmul(encoder, job, {{weights.routed[0], weights.routed[1]}, {}}, sorted);
    return launch_matmul(encoder, job, {{}, {weights.shared[0], weights.shared[1]}}, sorted);
  }
  const bool pair = weights.pair();
  MoeParams params = moe_params(job, weights, !pair);
  const int64_t tile = pair ? kOutputs / 2 : kOutputs, rows = tile_rows(job);
  params.tiles = u32(ceil_div(params.out, tile));
  params.shared_tiles = u32(ceil_div(params.shared_out, tile));
  const int64_t routed = weights.routed[0] ? most_tiles(job) * params.tiles : 0;
  params.first_shared = u32(routed);
  Launch launch(encoder, kMatmul, moe_constants(job, weights, pair ? SG_GATED : SG_STORE, rows));
  bind_moe(launch, job, weights, params);
  if (weights.routed[0]) launch.buffer(SG_MOE_ORDER, sorted.order()).buffer(SG_MOE_TILES, sorted.tiles());
  launch.threadgroup_memory(0, (rows + kOutputs) * kPitch * 4);
  const int64_t shared = weights.shared[0] ? ceil_div(job.rows(), rows) * params.shared_tiles : 0;
  launch.groups(routed + shared, 1, 1, kThreads);
}

}  // namespace

bool sorts_experts(const Context& context, int64_t rows) {
  return rows > context.tuning.matvec_rows && context.gpu.simdgroup_matrix && context.switches.metal_matmul &&
         context.switches.metal_sorted_experts;
}

void run_sorted_gated(MetalEncoder& encoder, const MoeJob& job) {
  const Experts& e = job.experts;
  const bool shared = e.shared_intermediate > 0;
  const Sorted sorted(encoder, job);
  const Weight* gate = shared ? &e.shared_gate : nullptr;
  const Weight* up = shared ? &e.shared_up : nullptr;
  launch_matmul(encoder, job, {{&e.gate, &e.up}, {gate, up}}, sorted);
}

void run_sorted_down(MetalEncoder& encoder, const MoeJob& job) {
  const Experts& e = job.experts;
  const bool shared = e.shared_intermediate > 0;
  const MoeWeights weights{{&e.down}, {shared ? &e.shared_down : nullptr}};
  const int64_t hidden = job.y.shape[1];
  const Sorted sorted(encoder, job);
  const OpScratch parts(encoder, {{DType::f32, {places_of(job) + (shared ? job.rows() : 0), hidden}}});
  MoeJob part = job;
  part.y = parts[0];
  launch_matmul(encoder, part, weights, sorted);
  encoder.barrier();
  MoeParams params = moe_params(job, weights, true);
  u32(job.rows() * hidden);
  Constants constants = moe_constants(job, weights, job.epilogue, 0);
  for (const size_t of_format : {0, 1, 2, 7}) constants.values[of_format] = 0;  // one pipeline for all formats
  Launch(encoder, kReduce, constants)
      .buffer(SG_MOE_Y, job.y)
      .buffer(SG_MOE_X, parts[0])
      .buffer(SG_MOE_IDS, job.routes.ids)
      .buffer(SG_MOE_WEIGHTS, job.routes.weights)
      .buffer(SG_MOE_GATE, job.gate)
      .params(SG_MOE_PARAMS, params)
      .threads(job.rows() * hidden);
}

}  // namespace saragossa::metal
