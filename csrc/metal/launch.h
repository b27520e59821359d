#pragma once
// One dispatch, told in the order of its parts:
//
//   Launch(*this, kAdd).params(SG_ADD_PARAMS, AddParams{n}).buffer(SG_ADD_A, a).buffer(SG_ADD_B, b)
//       .buffer(SG_ADD_Y, y).threads(n, 256);

#include "metal/metal_encoder.h"
#include "params/types.h"

namespace saragossa::metal {

/// A size for a params struct; what does not fit 32 bits is refused.
inline uint32_t u32(int64_t n) {
  require(n >= 0 && n <= 0xffffffffll, "metal: size ", n, " does not fit 32 bits");
  return static_cast<uint32_t>(n);
}

/// The numbers that MSL knows them by (params/types.h).
inline uint32_t shared_value(Activation act) { return act == Activation::silu ? SG_SILU : SG_GELU_TANH; }
inline uint32_t shared_value(DType t) {
  require(is_float(t) || t == DType::u8, "metal: ", name_of(t), " is no stored float");
  return t == DType::f32 ? SG_F32 : t == DType::f16 ? SG_F16 : t == DType::bf16 ? SG_BF16 : SG_E8M0;
}

class Launch {
 public:
  Launch(MetalEncoder& encoder, const Kernel& kernel, Constants constants = {});

  /// Left unbound when there is no tensor: a function constant must tell the kernel.
  Launch& buffer(int slot, const Tensor& tensor);
  /// A POD of metal/params.
  template <class T>
  Launch& params(int slot, const T& value) {
    static_assert(sizeof(T) <= 4096);
    compute_->setBytes(&value, sizeof(T), static_cast<NS::UInteger>(slot));
    return *this;
  }
  /// Threadgroup memory that the host sizes; bytes are rounded up to 16.
  Launch& threadgroup_memory(int slot, int64_t bytes);

  /// Threads of a threadgroup that this GPU runs of the kernel, in whole simdgroups.
  int64_t max_threads() const;

  /// One thread per element, whole threadgroups: the kernel checks the range.
  void threads(int64_t n, int64_t per_group = 256);
  void groups(int64_t x, int64_t y, int64_t z, int64_t threads_x, int64_t threads_y = 1);

 private:
  MetalEncoder& encoder_;
  const Kernel& kernel_;
  MTL::ComputeCommandEncoder* compute_;
  MTL::ComputePipelineState* pipeline_;
};

}  // namespace saragossa::metal
