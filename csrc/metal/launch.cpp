#include "metal/launch.h"

namespace saragossa::metal {
namespace {

NS::UInteger unsigned_of(int64_t n) { return static_cast<NS::UInteger>(n); }

}  // namespace

Launch::Launch(MetalEncoder& encoder, const Kernel& kernel, Constants constants)
    : encoder_(encoder), kernel_(kernel), pipeline_(encoder.context().kernels.pipeline(kernel, constants)) {
  encoder_.order();
  compute_ = encoder_.compute();
  encoder_.clear_threadgroup_memory();
  compute_->setComputePipelineState(pipeline_);
}

Launch& Launch::buffer(int slot, const Tensor& tensor) {
  if (!tensor) return *this;
  const auto& buffer = static_cast<const MetalBuffer&>(*tensor.buffer);
  compute_->setBuffer(buffer.mtl(), unsigned_of(buffer.offset() + tensor.offset), unsigned_of(slot));
  return *this;
}

Launch& Launch::threadgroup_memory(int slot, int64_t bytes) {
  encoder_.set_threadgroup_memory(slot, (bytes + 15) / 16 * 16);
  return *this;
}

int64_t Launch::max_threads() const {
  return static_cast<int64_t>(pipeline_->maxTotalThreadsPerThreadgroup()) / 32 * 32;
}

void Launch::threads(int64_t n, int64_t per_group) { groups((n + per_group - 1) / per_group, 1, 1, per_group); }

void Launch::groups(int64_t x, int64_t y, int64_t z, int64_t threads_x, int64_t threads_y) {
  require(threads_x * threads_y <= static_cast<int64_t>(pipeline_->maxTotalThreadsPerThreadgroup()), kernel_.function,
          ": ", threads_x * threads_y, " threads per group, this GPU runs ",
          pipeline_->maxTotalThreadsPerThreadgroup());
  if (x * y * z == 0) return;
  compute_->dispatchThreadgroups(MTL::Size(unsigned_of(x), unsigned_of(y), unsigned_of(z)),
                                 MTL::Size(unsigned_of(threads_x), unsigned_of(threads_y), 1));
  encoder_.dispatched(kernel_);
}

}  // namespace saragossa::metal
