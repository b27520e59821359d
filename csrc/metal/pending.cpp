// Ops whose kernels are being written.
#include "metal/metal_encoder.h"

namespace saragossa::metal {
namespace {

[[noreturn]] void pending(const char* op) { fail(ErrorKind::device, "metal: ", op, " has no kernel yet"); }

}  // namespace

void MetalEncoder::do_embed(const Tensor&, const Weight&, const Tensor&, float) { pending("embed"); }
void MetalEncoder::do_linear(const Tensor&, const Tensor&, const Weight&, const Tensor&) { pending("linear"); }
void MetalEncoder::do_linear_group(const Tensor&, std::span<const LinearOut>) { pending("linear_group"); }
void MetalEncoder::do_linear_add(const Tensor&, const Tensor&, const Weight&, const Tensor&) { pending("linear_add"); }
void MetalEncoder::do_linear_gated(const Tensor&, const Tensor&, const Weight&, const Weight&, const Tensor&,
                                   const Tensor&, Activation) {
  pending("linear_gated");
}

void MetalEncoder::do_sample(const SampleArgs&) { pending("sample"); }

}  // namespace saragossa::metal
