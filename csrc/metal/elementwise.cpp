#include "params/elementwise.h"
#include "metal/launch.h"

namespace saragossa::metal {
namespace {

constexpr Kernel kAdd{"elementwise", "add"};
constexpr Kernel kActMul{"elementwise", "act_mul"};
constexpr Kernel kSigmoidMul{"elementwise", "sigmoid_mul"};
constexpr Kernel kScale{"elementwise", "scale"};
constexpr Kernel kCopy{"elementwise", "copy"};
constexpr Kernel kSoftcap{"elementwise", "softcap"};
constexpr Kernel kGatherRows{"elementwise", "gather_rows"};
constexpr Kernel kAdvance{"elementwise", "advance"};

}  // namespace

void MetalEncoder::do_add(const Tensor& y, const Tensor& a, const Tensor& b) {
  Launch(*this, kAdd)
      .buffer(SG_ADD_Y, y)
      .buffer(SG_ADD_A, a)
      .buffer(SG_ADD_B, b)
      .params(SG_ADD_PARAMS, ElementwiseParams{u32(y.numel())})
      .threads(y.numel());
}

void MetalEncoder::do_act_mul(const Tensor& y, const Tensor& gate, const Tensor& up, Activation act) {
  Launch(*this, kActMul)
      .buffer(SG_ACT_MUL_Y, y)
      .buffer(SG_ACT_MUL_GATE, gate)
      .buffer(SG_ACT_MUL_UP, up)
      .params(SG_ACT_MUL_PARAMS, ActMulParams{u32(y.numel()), shared_value(act)})
      .threads(y.numel());
}

void MetalEncoder::do_sigmoid_mul(const Tensor& y, const Tensor& x, const Tensor& gate) {
  Launch(*this, kSigmoidMul)
      .buffer(SG_SIGMOID_MUL_Y, y)
      .buffer(SG_SIGMOID_MUL_X, x)
      .buffer(SG_SIGMOID_MUL_GATE, gate)
      .params(SG_SIGMOID_MUL_PARAMS, ElementwiseParams{u32(y.numel())})
      .threads(y.numel());
}

void MetalEncoder::do_scale(const Tensor& x, float factor) {
  Launch(*this, kScale)
      .buffer(SG_SCALE_X, x)
      .params(SG_SCALE_PARAMS, ScaleParams{u32(x.numel()), factor})
      .threads(x.numel());
}

void MetalEncoder::do_copy(const Tensor& y, const Tensor& x) {
  Launch(*this, kCopy)
      .buffer(SG_COPY_Y, y)
      .buffer(SG_COPY_X, x)
      .params(SG_COPY_PARAMS, ElementwiseParams{u32(y.numel())})
      .threads(y.numel());
}

void MetalEncoder::do_softcap(const Tensor& x, float cap) {
  Launch(*this, kSoftcap)
      .buffer(SG_SOFTCAP_X, x)
      .params(SG_SOFTCAP_PARAMS, SoftcapParams{u32(x.numel()), cap})
      .threads(x.numel());
}

void MetalEncoder::do_gather_rows(const Tensor& y, const Tensor& x, const Tensor& rows) {
  Launch(*this, kGatherRows)
      .buffer(SG_GATHER_Y, y)
      .buffer(SG_GATHER_X, x)
      .buffer(SG_GATHER_ROWS, rows)
      .params(SG_GATHER_PARAMS, GatherParams{u32(y.shape[0]), u32(y.shape[1]), u32(x.shape[0])})
      .threads(y.numel());
}

void MetalEncoder::do_advance(const Batch& batch, const Tensor& ids) {
  Launch(*this, kAdvance)
      .buffer(SG_ADVANCE_IDS, batch.ids)
      .buffer(SG_ADVANCE_POSITIONS, batch.positions)
      .buffer(SG_ADVANCE_DRAWN, ids)
      .params(SG_ADVANCE_PARAMS, ElementwiseParams{u32(ids.numel())})
      .threads(ids.numel(), 32);
}

}  // namespace saragossa::metal
