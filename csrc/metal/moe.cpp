// Mixtures of experts on Metal.

#include "metal/metal_encoder.h"

namespace saragossa::metal {
namespace {

[[noreturn]] void absent(const char* op) {
  fail(ErrorKind::device, "metal: no kernel for ", op, " yet; use the CPU device (--device cpu)");
}

}  // namespace

void MetalEncoder::do_route(const Routes&, const Tensor&, bool, const Tensor&) { absent("route"); }
void MetalEncoder::do_moe_gated(const Tensor&, const Tensor&, const Tensor&, const Experts&) { absent("moe_gated"); }
void MetalEncoder::do_moe_down(const Tensor&, const Tensor&, const Routes&, const Tensor&, const Experts&, bool) {
  absent("moe_down");
}

}  // namespace saragossa::metal
