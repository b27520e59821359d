#include "metal/norm.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "metal/launch.h"
#include "params/norm.h"

namespace saragossa::metal {
namespace {

constexpr Kernel kRmsNorm{"norm", "rms_norm"};
constexpr Kernel kNormAdd{"norm", "norm_add"};
constexpr Kernel kNormAddNorm{"norm", "norm_add_norm"};
constexpr Kernel kNormGroup{"norm", "norm_group"};
constexpr Kernel kPerLayerInputs{"norm", "per_layer_inputs"};
constexpr Kernel kRmsNormSplit{"norm", "rms_norm_split"};

bool aligned16(const Tensor& t) { return (static_cast<const MetalBuffer&>(*t.buffer).offset() + t.offset) % 16 == 0; }

/// Floats of a load.
uint32_t width_of(int64_t n, std::initializer_list<const Tensor*> tensors) {
  return n % 4 == 0 && std::ranges::all_of(tensors, [](const Tensor* t) { return aligned16(*t); }) ? 4 : 1;
}

/// Whole simdgroups that give each four floats of a row a thread, at most `most`.
int64_t threads_of(const Launch& launch, int64_t n, int64_t most) {
  return std::clamp<int64_t>((n + 127) / 128 * 32, 32, std::min(most, launch.max_threads()));
}

NormParams params_of(const Tensor& x, float eps) {
  const int64_t n = x.shape.last();
  require(n <= SG_NORM_MOST, "metal: a norm over ", n, " values, at most ", SG_NORM_MOST, " are supported");
  return {u32(n), eps, 1.0f, 1};
}

/// A threadgroup each of `rows` rows.
void launch_rows(Launch& launch, int64_t rows, const NormParams& params) {
  launch.params(SG_NORM_PARAMS, params).groups(rows, 1, 1, threads_of(launch, params.n, 1024));
}

void launch_norm(MetalEncoder& encoder, const Kernel& kernel, const Tensor& y, const Tensor& x, const Tensor& w,
                 float eps) {
  const uint32_t width = width_of(x.shape.last(), {&y, &x, &w});
  Launch launch(encoder, kernel, {{width}, 1});
  launch.buffer(SG_NORM_Y, y).buffer(SG_NORM_X, x).buffer(SG_NORM_W, w);
  launch_rows(launch, x.shape.rows(), params_of(x, eps));
}

}  // namespace

void launch_norm_split(MetalEncoder& encoder, const Tensor& y, const Tensor& x, const Tensor& squares, const Tensor& w,
                       float eps) {
  const int64_t n = x.shape.last();
  Launch launch(encoder, kRmsNormSplit, {{width_of(n, {&y, &x, &w})}, 1});
  const int64_t threads = threads_of(launch, n, encoder.context().tuning.norm_split_threads);
  launch.buffer(SG_NORM_Y, y)
      .buffer(SG_NORM_X, x)
      .buffer(SG_NORM_W, w)
      .buffer(SG_NORM_SQUARES, squares)
      .params(SG_NORM_PARAMS, params_of(x, eps))
      .groups((n + 4 * threads - 1) / (4 * threads), x.shape.rows(), 1, threads);
}

void MetalEncoder::do_rms_norm(const Tensor& y, const Tensor& x, const Tensor& w, float eps) {
  launch_norm(*this, kRmsNorm, y, x, w, eps);
}

void MetalEncoder::do_norm_add(const Tensor& y, const Tensor& x, const Tensor& w, float eps) {
  launch_norm(*this, kNormAdd, y, x, w, eps);
}

void MetalEncoder::do_norm_add_norm(const Tensor& y, const Tensor& z, const Tensor& x, const Tensor& w,
                                    const Tensor& w2, float eps, float factor) {
  const uint32_t width = width_of(x.shape.last(), {&y, &z, &x, &w, &w2});
  Launch launch(*this, kNormAddNorm, {{width}, 1});
  launch.buffer(SG_NORM_Y, y).buffer(SG_NORM_Z, z).buffer(SG_NORM_X, x).buffer(SG_NORM_W, w).buffer(SG_NORM_W2, w2);
  NormParams params = params_of(x, eps);
  params.factor = factor;
  launch_rows(launch, x.shape.rows(), params);
}

void MetalEncoder::do_norm_group(const Tensor& x, std::span<const NormOut> outs, float eps) {
  constexpr int kSlots[][2] = {{SG_NORM_Y, SG_NORM_W}, {SG_NORM_Y1, SG_NORM_W1}, {SG_NORM_Y2, SG_NORM_W_OF_Y2}};
  uint32_t width = width_of(x.shape.last(), {&x});
  for (const NormOut& out : outs) width = std::min(width, width_of(x.shape.last(), {&out.y, &out.w}));
  Launch launch(*this, kNormGroup, {{width, u32(static_cast<int64_t>(outs.size()))}, 2});
  launch.buffer(SG_NORM_X, x);
  for (size_t i = 0; i < std::size(kSlots); ++i) {  // every slot is bound; the kernel knows how many there are
    const NormOut& out = outs[std::min(i, outs.size() - 1)];
    launch.buffer(kSlots[i][0], out.y).buffer(kSlots[i][1], out.w);
  }
  launch_rows(launch, x.shape.rows(), params_of(x, eps));
}

void MetalEncoder::do_per_layer_inputs(const Tensor& y, const Tensor& projected, const Tensor& embedded,
                                       const Tensor& w, float eps) {
  NormParams params = params_of(y, eps);
  params.layers = u32(y.shape[0]);
  Launch launch(*this, kPerLayerInputs, {{width_of(y.shape[2], {&y, &projected, &embedded, &w})}, 1});
  launch.buffer(SG_NORM_Y, y).buffer(SG_NORM_X, projected).buffer(SG_NORM_W, w).buffer(SG_NORM_ADDED, embedded);
  launch_rows(launch, y.shape[0] * y.shape[1], params);
}

}  // namespace saragossa::metal
