#include "params/norm.h"

#include <algorithm>
#include <initializer_list>

#include "metal/launch.h"

namespace saragossa::metal {
namespace {

constexpr Kernel kRmsNorm{"norm", "rms_norm"};
constexpr Kernel kNormAdd{"norm", "norm_add"};
constexpr Kernel kNormAddNorm{"norm", "norm_add_norm"};

bool aligned16(const Tensor& t) { return (static_cast<const MetalBuffer&>(*t.buffer).offset() + t.offset) % 16 == 0; }

/// Floats of a load.
uint32_t width_of(int64_t n, std::initializer_list<const Tensor*> tensors) {
  return n % 4 == 0 && std::ranges::all_of(tensors, [](const Tensor* t) { return aligned16(*t); }) ? 4 : 1;
}

/// A threadgroup a row, a thread a load of it.
void launch_rows(Launch& launch, const Tensor& x, uint32_t width, float eps) {
  const int64_t n = x.shape.last();
  launch.params(SG_NORM_PARAMS, NormParams{u32(n), eps})
      .groups(x.shape.rows(), 1, 1, std::clamp<int64_t>((n / width + 31) / 32 * 32, 32, 1024));
}

void launch_norm(MetalEncoder& encoder, const Kernel& kernel, const Tensor& y, const Tensor& x, const Tensor& w,
                 float eps) {
  const uint32_t width = width_of(x.shape.last(), {&y, &x, &w});
  Launch launch(encoder, kernel, {{width}, 1});
  launch.buffer(SG_NORM_Y, y).buffer(SG_NORM_X, x).buffer(SG_NORM_W, w);
  launch_rows(launch, x, width, eps);
}

}  // namespace

void MetalEncoder::do_rms_norm(const Tensor& y, const Tensor& x, const Tensor& w, float eps) {
  launch_norm(*this, kRmsNorm, y, x, w, eps);
}

void MetalEncoder::do_norm_add(const Tensor& y, const Tensor& x, const Tensor& w, float eps) {
  launch_norm(*this, kNormAdd, y, x, w, eps);
}

void MetalEncoder::do_norm_add_norm(const Tensor& y, const Tensor& z, const Tensor& x, const Tensor& w,
                                    const Tensor& w2, float eps) {
  const uint32_t width = width_of(x.shape.last(), {&y, &z, &x, &w, &w2});
  Launch launch(*this, kNormAddNorm, {{width}, 1});
  launch.buffer(SG_NORM_Y, y).buffer(SG_NORM_Z, z).buffer(SG_NORM_X, x).buffer(SG_NORM_W, w).buffer(SG_NORM_W2, w2);
  launch_rows(launch, x, width, eps);
}

}  // namespace saragossa::metal
