// Small ops of Gemma 4 and of gated attention on Metal.

#include "metal/metal_encoder.h"

namespace saragossa::metal {
namespace {

[[noreturn]] void absent(const char* op) {
  fail(ErrorKind::device, "metal: no kernel for ", op, " yet; use the CPU device (--device cpu)");
}

}  // namespace

void MetalEncoder::do_scale(const Tensor&, float) { absent("scale"); }
void MetalEncoder::do_copy(const Tensor&, const Tensor&) { absent("copy"); }
void MetalEncoder::do_sigmoid_mul(const Tensor&, const Tensor&, const Tensor&) { absent("sigmoid_mul"); }
void MetalEncoder::do_per_layer_inputs(const Tensor&, const Tensor&, const Tensor&, const Tensor&, float) {
  absent("per_layer_inputs");
}

}  // namespace saragossa::metal
