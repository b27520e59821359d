#include "params/norm.h"

#include <algorithm>

#include "metal/launch.h"

namespace saragossa::metal {
namespace {

constexpr Kernel kRmsNorm{"norm", "rms_norm"};
constexpr Kernel kNormAdd{"norm", "norm_add"};

bool aligned16(const Tensor& t) { return (static_cast<const MetalBuffer&>(*t.buffer).offset() + t.offset) % 16 == 0; }

void launch_norm(MetalEncoder& encoder, const Kernel& kernel, const Tensor& y, const Tensor& x, const Tensor& w,
                 float eps) {
  const int64_t n = x.shape.last();
  const uint32_t width = n % 4 == 0 && aligned16(y) && aligned16(x) && aligned16(w) ? 4 : 1;
  const int64_t threads = std::clamp<int64_t>((n / width + 31) / 32 * 32, 32, 1024);
  Launch(encoder, kernel, {{width}, 1})
      .buffer(SG_NORM_Y, y)
      .buffer(SG_NORM_X, x)
      .buffer(SG_NORM_W, w)
      .params(SG_NORM_PARAMS, NormParams{u32(n), eps})
      .groups(x.shape.rows(), 1, 1, threads);
}

}  // namespace

void MetalEncoder::do_rms_norm(const Tensor& y, const Tensor& x, const Tensor& w, float eps) {
  launch_norm(*this, kRmsNorm, y, x, w, eps);
}

void MetalEncoder::do_norm_add(const Tensor& y, const Tensor& x, const Tensor& w, float eps) {
  launch_norm(*this, kNormAdd, y, x, w, eps);
}

}  // namespace saragossa::metal
