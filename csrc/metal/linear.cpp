#include "metal/linear.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "metal/norm.h"

namespace saragossa::metal {
namespace {

constexpr Kernel kMatvec{"matvec", "matvec"};

// Of matvec.metal.
constexpr int64_t kSimdgroups = 2;
constexpr int64_t kOutputs = 4;
constexpr int64_t kMostRows = 8;

int64_t address_of(const Tensor& t) { return static_cast<const MetalBuffer&>(*t.buffer).offset() + t.offset; }

/// Whether a linear of so many rows runs in matvec.
bool takes_matvec(const Context& context, int64_t rows) {
  return rows <= context.tuning.matvec_rows || !context.gpu.simdgroup_matrix || !context.switches.metal_matmul;
}

using LinearLaunch = void (*)(MetalEncoder& encoder, const LinearJob& job);

/// In tiles of rows, so that no command buffer holds more than its bound; the few of a decoded token stay whole.
void run_in_bound(MetalEncoder& encoder, const LinearJob& job, LinearLaunch launch) {
  if (job.rows() <= encoder.context().tuning.matvec_rows) return launch(encoder, job);
  int64_t outputs = 0;
  for (const LinearOut& out : job.outs) outputs += out.weight->out;
  const int64_t work = job.weight().in * outputs, most = encoder.rows_in_bound(work);
  std::vector<LinearOut> outs(job.outs.begin(), job.outs.end());
  LinearJob part = job;
  part.outs = outs;
  for (int64_t first = 0; first < job.rows(); first += most) {
    const int64_t rows = std::min(most, job.rows() - first);
    part.x = job.x.slice(first, rows);
    if (job.squares) part.squares = job.squares.slice(first, rows);
    for (size_t j = 0; j < outs.size(); ++j)
      if (job.outs[j].y) outs[j].y = job.outs[j].y.slice(first, rows);
    encoder.work(rows * work);
    launch(encoder, part);
  }
}

void run(MetalEncoder& encoder, const LinearJob& job) {
  if (job.rows() == 0) return;
  const Context& context = encoder.context();
  if (takes_matvec(context, job.rows())) return run_in_bound(encoder, job, &launch_matvec);
  // By the rows of the whole job: the last tile must add in the order of the others.
  run_in_bound(encoder, job, job.rows() <= context.tuning.split_rows ? &run_matmul : &run_matmul_unsplit);
}

/// Weights of one format in one dispatch; the dispatches do not depend on each other.
void run_group(MetalEncoder& encoder, const Tensor& x, std::span<const LinearOut> outs) {
  std::vector<LinearOut> left(outs.begin(), outs.end());
  while (!left.empty()) {
    const auto other = std::stable_partition(
        left.begin(), left.end(), [&](const LinearOut& out) { return same_format(*left[0].weight, *out.weight); });
    run(encoder, {x, {left.begin(), other}});
    left.erase(left.begin(), other);
  }
}

}  // namespace

bool same_format(const Weight& a, const Weight& b) {
  return a.bits == b.bits && a.group == b.group && a.in == b.in && a.stored() == b.stored();
}

bool is_ragged(const LinearJob& job) {
  bool aligned = job.weight().in % 8 == 0 && address_of(job.x) % 16 == 0;
  for (const LinearOut& out : job.outs) aligned = aligned && address_of(out.weight->data) % 8 == 0;
  require(aligned || !job.weight().quantised(),
          "metal: x or a quantised weight stands at no multiple of its alignment");
  return !aligned;
}

Constants linear_constants(const LinearJob& job, uint32_t rows_of_group) {
  const Weight& w = job.weight();
  uint32_t biased = 0;
  for (size_t j = 0; j < job.outs.size(); ++j)
    if (job.outs[j].bias) biased |= 1u << j;
  const auto shift = w.quantised() ? static_cast<uint32_t>(std::countr_zero(static_cast<unsigned>(w.group))) : 0u;
  return {{static_cast<uint32_t>(w.bits), shift, shared_value(w.stored()), rows_of_group,
           static_cast<uint32_t>(job.outs.size()), biased, job.epilogue, is_ragged(job) ? 1u : 0u},
          8};
}

int64_t bind_linear(Launch& launch, const LinearJob& job, int64_t tile) {
  u32(job.rows() * job.weight().in);  // kernels index x and y by 32 bits
  LinearParams params{u32(job.rows()), u32(job.weight().in), {}, {}, {}, shared_value(job.activation)};
  int64_t tiles = 0;
  for (size_t j = 0; j < job.outs.size(); ++j) {
    const LinearOut& out = job.outs[j];
    const int slot = static_cast<int>(j) * SG_LINEAR_SLOTS;
    launch.buffer(SG_LINEAR_CODES0 + slot, out.weight->data)
        .buffer(SG_LINEAR_SCALES0 + slot, out.weight->scales)
        .buffer(SG_LINEAR_BIASES0 + slot, out.weight->biases)
        .buffer(SG_LINEAR_BIAS0 + slot, out.bias)
        .buffer(SG_LINEAR_Y0 + slot, out.y);
    params.out[j] = u32(out.weight->out);
    params.first_tile[j] = u32(tiles);
    params.depth[j] = u32(job.depth[j] > 0 ? job.depth[j] : job.weight().in);
    if (job.epilogue != SG_GATED || j == 0) tiles += (out.weight->out + tile - 1) / tile;
    u32(job.rows() * out.weight->out);
  }
  launch.buffer(SG_LINEAR_X, job.x).params(SG_LINEAR_PARAMS, params);
  return tiles;
}

void launch_matvec(MetalEncoder& encoder, const LinearJob& job) {
  const int64_t rows = std::min(kMostRows, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(job.rows()))));
  Launch launch(encoder, kMatvec, linear_constants(job, u32(rows)));
  const int64_t outputs = job.epilogue == SG_GATED ? kOutputs / 2 : kOutputs;
  const int64_t tiles = bind_linear(launch, job, kSimdgroups * outputs);
  launch.buffer(SG_LINEAR_SQUARES, job.squares);
  launch.groups(tiles, (job.rows() + rows - 1) / rows, 1, 32 * kSimdgroups);
}

void MetalEncoder::do_linear(const Tensor& y, const Tensor& x, const Weight& w, const Tensor& bias) {
  const LinearOut out{y, &w, bias};
  run(*this, {x, {&out, 1}});
}

void MetalEncoder::do_linear_add(const Tensor& y, const Tensor& x, const Weight& w, const Tensor& bias) {
  const LinearOut out{y, &w, bias};
  run(*this, {x, {&out, 1}, SG_ADD});
}

void MetalEncoder::do_linear_add_norm(const Tensor& y, const Tensor& z, const Tensor& x, const Weight& w,
                                      const Tensor& bias, const Tensor& norm, float eps) {
  const LinearOut out{y, &w, bias};
  const int64_t rows = x.shape[0];
  // Of many rows the sums of squares would take a quarter of their outputs.
  if (rows == 0 || rows > context_->tuning.matvec_rows || !context_->switches.metal_statistics) {
    run(*this, {x, {&out, 1}, SG_ADD});
    barrier();
    return do_rms_norm(z, y, norm, eps);
  }
  const OpScratch squares(*this, {{DType::f32, {rows, (w.out + 3) / 4}}});
  run_in_bound(*this, {x, {&out, 1}, SG_ADD_SQUARES, Activation::silu, squares[0]}, &launch_matvec);
  barrier();
  launch_norm_split(*this, z, y, squares[0], norm, eps);
}

void MetalEncoder::do_linear_group(const Tensor& x, std::span<const LinearOut> outs) {
  static_assert(SG_LINEAR_MOST == 4);  // as many as the op takes
  run_group(*this, x, outs);
}

void MetalEncoder::do_linear_gated(const Tensor& y, const Tensor& x, const Weight& gate, const Weight& up,
                                   const Tensor& gate_bias, const Tensor& up_bias, Activation act) {
  if (same_format(gate, up)) {
    const LinearOut outs[] = {{y, &gate, gate_bias}, {{}, &up, up_bias}};
    return run(*this, {x, outs, SG_GATED, act});
  }
  const OpScratch parts(*this, {{DType::f32, y.shape}, {DType::f32, y.shape}});
  const Tensor &g = parts[0], &u = parts[1];
  const LinearOut outs[] = {{g, &gate, gate_bias}, {u, &up, up_bias}};
  run_group(*this, x, outs);
  barrier();
  do_act_mul(y, g, u, act);
}

}  // namespace saragossa::metal
