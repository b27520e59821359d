#include "params/gated_delta.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "metal/launch.h"
#include "params/causal_conv.h"

namespace saragossa::metal {
namespace {

constexpr Kernel kCausalConv{"causal_conv", "causal_conv"};
constexpr Kernel kQkL2Norm{"causal_conv", "qk_l2_norm"};
constexpr Kernel kDeltaStep{"gated_delta", "delta_rule_step"};
constexpr Kernel kDeltaRows{"gated_delta", "delta_rule_rows"};
constexpr Kernel kDeltaChunks{"delta_chunks", "delta_rule_chunks"};
constexpr Kernel kGatedNorm{"gated_delta", "gated_norm"};

constexpr int64_t kSimdgroups = 4;  // of threadgroups whose simdgroups know nothing of each other
static_assert(kMostConvWidth == SG_CONV_MOST_WIDTH);

int64_t groups_of(int64_t simdgroups) { return (simdgroups + kSimdgroups - 1) / kSimdgroups; }
float q_factor(const DeltaHeads& heads) { return 1.0f / std::sqrt(static_cast<float>(heads.key_dim)); }
int64_t longest(const Batch& batch) { return std::ranges::max(batch.runs); }
int64_t runs_of(const Batch& batch) { return static_cast<int64_t>(batch.runs.size()); }

bool aligned16(const Tensor& t) { return (static_cast<const MetalBuffer&>(*t.buffer).offset() + t.offset) % 16 == 0; }

/// heads none: the convolution alone.
void launch_conv(MetalEncoder& encoder, const Tensor& y, const Tensor& x, const Tensor& w, const DeltaHeads& heads,
                 const RecurrentLayer& state, const Batch& batch) {
  const bool normed = heads.key_heads > 0;
  const int64_t channels = x.shape[1], unit = normed ? heads.key_dim : 128, units = (channels + unit - 1) / unit;
  const int64_t q_units = normed ? heads.key_heads : 0;
  Launch(encoder, kCausalConv, {{u32(w.shape[1]), u32(unit), normed ? 1u : 0u}, 3})
      .buffer(SG_CONV_Y, y)
      .buffer(SG_CONV_X, x)
      .buffer(SG_CONV_W, w)
      .buffer(SG_CONV_STATES, state.conv)
      .buffer(SG_CONV_RUN_STARTS, batch.run_starts)
      .buffer(SG_CONV_SEQUENCE, batch.sequence)
      .buffer(SG_CONV_STATE_IN, batch.state_in)
      .buffer(SG_CONV_STATE_OUT, batch.state_out)
      .params(SG_CONV_PARAMS, ConvParams{u32(channels), u32(units), u32(state.conv.shape[0]), u32(q_units),
                                         u32(2 * q_units), normed ? q_factor(heads) : 1.0f})
      .groups(groups_of(units), (longest(batch) + SG_CONV_ROWS - 1) / SG_CONV_ROWS, runs_of(batch), 32 * kSimdgroups);
}

constexpr uint32_t kNoChunks = 0xffffffff;  // no run is that long

/// What the kernels of the delta rule share.
struct DeltaArgs {
  const Tensor& y;
  const Tensor& qkv;
  const DeltaGates& gates;
  const DeltaHeads& heads;
  const RecurrentLayer& state;
  const Batch& batch;
  float eps = 0.0f;
  uint32_t chunked_rows = kNoChunks;  // runs of at least as many rows go by chunks

  uint32_t vector() const {
    return heads.key_dim % 4 == 0 && heads.channels() % 4 == 0 && aligned16(qkv) && aligned16(state.delta) ? 4 : 1;
  }
  /// Simdgroups that have a value row each of the head.
  int64_t simdgroups() const { return (heads.value_dim + SG_DELTA_ROWS - 1) / SG_DELTA_ROWS; }

  Launch& bind(Launch& launch) const {
    return launch.buffer(SG_DELTA_Y, y)
        .buffer(SG_DELTA_QKV, qkv)
        .buffer(SG_DELTA_A, gates.a)
        .buffer(SG_DELTA_B, gates.b)
        .buffer(SG_DELTA_A_LOG, gates.a_log)
        .buffer(SG_DELTA_DT_BIAS, gates.dt_bias)
        .buffer(SG_DELTA_STATES, state.delta)
        .buffer(SG_DELTA_RUN_STARTS, batch.run_starts)
        .buffer(SG_DELTA_SEQUENCE, batch.sequence)
        .buffer(SG_DELTA_STATE_IN, batch.state_in)
        .buffer(SG_DELTA_STATE_OUT, batch.state_out)
        .params(SG_DELTA_PARAMS, DeltaParams{u32(heads.key_heads), u32(heads.value_heads), u32(heads.value_dim),
                                             u32(state.delta.shape[0]), chunked_rows, eps});
  }
};

/// z, w none: without the norm.
void launch_step(MetalEncoder& encoder, const DeltaArgs& args, const Tensor& z, const Tensor& w) {
  Launch launch(encoder, kDeltaStep, {{u32(args.heads.key_dim), args.vector(), 0, z ? 1u : 0u}, 4});
  const int64_t threads = 32 * std::min<int64_t>(args.simdgroups(), launch.max_threads() / 32);
  args.bind(launch)
      .buffer(SG_DELTA_Z, z)
      .buffer(SG_DELTA_NORM, w)
      .groups(args.heads.value_heads, runs_of(args.batch), 1, threads);
}

void launch_rows(MetalEncoder& encoder, const DeltaArgs& args) {
  // Half of the threadgroup memory, so that a core has two groups to choose from.
  const int64_t floats = 2 * ((args.heads.key_dim + 3) / 4 * 4 + 1),
                stage = std::min<int64_t>(32, 16 * 1024 / 4 / floats);
  const int64_t simdgroups = std::min<int64_t>(8, args.simdgroups());
  Launch launch(encoder, kDeltaRows, {{u32(args.heads.key_dim), args.vector(), u32(stage), 0}, 4});
  args.bind(launch)
      .threadgroup_memory(SG_DELTA_STAGE, stage * floats * 4)
      .groups(args.heads.value_heads, runs_of(args.batch), (args.simdgroups() + simdgroups - 1) / simdgroups,
              32 * simdgroups);
}

void launch_chunks(MetalEncoder& encoder, const DeltaArgs& args) {
  Launch launch(encoder, kDeltaChunks, {{u32(args.heads.key_dim)}, 1});
  args.bind(launch)
      .threadgroup_memory(SG_DELTA_STAGE, SG_DELTA_CHUNK_FLOATS * 4)
      .groups(args.heads.value_heads, runs_of(args.batch),
              (args.heads.value_dim + SG_DELTA_CHUNK_VALUES - 1) / SG_DELTA_CHUNK_VALUES, SG_DELTA_CHUNK_THREADS);
}

/// Longer runs by chunks, shorter ones row by row; no barrier between them, since they share no row and no slot that is
/// written.
void launch_many(MetalEncoder& encoder, DeltaArgs args) {
  const Context& context = encoder.context();
  const Switches& switches = context.switches;
  encoder.work(3 * args.batch.tokens() * args.heads.values() * args.heads.key_dim);
  // The exact mode (activations f32) keeps the order of the sequential form.
  if (switches.chunked_delta && switches.activations != Activations::f32 && context.gpu.simdgroup_matrix &&
      args.heads.key_dim % 8 == 0)
    args.chunked_rows = u32(context.tuning.delta_rows);
  if (longest(args.batch) >= args.chunked_rows) launch_chunks(encoder, args);
  if (std::ranges::min(args.batch.runs) < args.chunked_rows) launch_rows(encoder, args);
}

void launch_gated_norm(MetalEncoder& encoder, const Tensor& x, const Tensor& z, const Tensor& w, float eps) {
  const int64_t n = w.shape[0], heads = x.numel() / n;
  Launch(encoder, kGatedNorm, {{1, 1, 0, 0}, 4})
      .buffer(SG_GATED_X, x)
      .buffer(SG_GATED_Z, z)
      .buffer(SG_GATED_W, w)
      .params(SG_GATED_PARAMS, GatedNormParams{u32(heads), u32(n), eps})
      .groups(groups_of(heads), 1, 1, 32 * kSimdgroups);
}

void expect_key_dim(const DeltaHeads& heads) {
  require(heads.key_dim <= SG_DELTA_MOST_KEY_DIM, "metal: delta_rule with keys of ", heads.key_dim, ", at most ",
          SG_DELTA_MOST_KEY_DIM, " are supported");
}

bool few_rows(const Batch& batch) { return longest(batch) <= kMostKeptRows; }

}  // namespace

void MetalEncoder::do_causal_conv(const Tensor& y, const Tensor& x, const Tensor& w, const RecurrentLayer& state,
                                  const Batch& batch) {
  launch_conv(*this, y, x, w, {}, state, batch);
}

void MetalEncoder::do_conv_qk_norm(const Tensor& y, const Tensor& x, const Tensor& w, const DeltaHeads& heads,
                                   const RecurrentLayer& state, const Batch& batch) {
  if (heads.key_dim > SG_CONV_MOST_UNIT) return CommandEncoder::do_conv_qk_norm(y, x, w, heads, state, batch);
  launch_conv(*this, y, x, w, heads, state, batch);
}

void MetalEncoder::do_qk_l2_norm(const Tensor& x, const DeltaHeads& heads) {
  const int64_t rows = x.shape[0];
  Launch(*this, kQkL2Norm, {{1, 1, 0}, 3})
      .buffer(SG_L2_X, x)
      .params(SG_L2_PARAMS, L2Params{u32(rows), u32(heads.channels()), u32(heads.key_heads), u32(2 * heads.key_heads),
                                     u32(heads.key_dim), q_factor(heads)})
      .groups(groups_of(rows * 2 * heads.key_heads), 1, 1, 32 * kSimdgroups);
}

void MetalEncoder::do_delta_rule(const Tensor& y, const Tensor& qkv, const DeltaGates& gates, const DeltaHeads& heads,
                                 const RecurrentLayer& state, const Batch& batch) {
  expect_key_dim(heads);
  const DeltaArgs args{y, qkv, gates, heads, state, batch};
  if (few_rows(batch)) return launch_step(*this, args, {}, {});
  launch_many(*this, args);
}

void MetalEncoder::do_delta_rule_norm(const Tensor& y, const Tensor& qkv, const DeltaGates& gates,
                                      const DeltaHeads& heads, const Tensor& z, const Tensor& w, float eps,
                                      const RecurrentLayer& state, const Batch& batch) {
  expect_key_dim(heads);
  const DeltaArgs args{y, qkv, gates, heads, state, batch, eps};
  if (few_rows(batch)) return launch_step(*this, args, z, w);
  launch_many(*this, args);
  barrier();
  launch_gated_norm(*this, y, z, w, eps);
}

void MetalEncoder::do_gated_norm(const Tensor& x, const Tensor& z, const Tensor& w, float eps) {
  launch_gated_norm(*this, x, z, w, eps);
}

}  // namespace saragossa::metal
