// The gated delta net on Metal.

#include "metal/metal_encoder.h"

namespace saragossa::metal {
namespace {

[[noreturn]] void absent(const char* op) {
  fail(ErrorKind::device, "metal: no kernel for ", op, " yet; use the CPU device (--device cpu)");
}

}  // namespace

void MetalEncoder::do_causal_conv(const Tensor&, const Tensor&, const Tensor&, const RecurrentLayer&, const Batch&) {
  absent("causal_conv");
}
void MetalEncoder::do_qk_l2_norm(const Tensor&, const DeltaHeads&) { absent("qk_l2_norm"); }
void MetalEncoder::do_delta_rule(const Tensor&, const Tensor&, const DeltaGates&, const DeltaHeads&,
                                 const RecurrentLayer&, const Batch&) {
  absent("delta_rule");
}
void MetalEncoder::do_gated_norm(const Tensor&, const Tensor&, const Tensor&, float) { absent("gated_norm"); }

}  // namespace saragossa::metal
