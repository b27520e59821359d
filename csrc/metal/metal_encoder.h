#pragma once
// The encoder of the Metal device: each op becomes dispatches in one concurrent compute encoder of one command buffer.
// The ops' bodies stand by family: elementwise.cpp, norm.cpp, rope.cpp, attention.cpp, gated_delta.cpp (with the
// convolution), linear.cpp, matmul.cpp, moe.cpp, moe_sorted.cpp, embed.cpp, sample.cpp.

#include <array>
#include <initializer_list>
#include <memory>
#include <utility>

#include "encoder.h"
#include "metal/metal_context.h"

namespace saragossa::metal {

class MetalEncoder final : public CommandEncoder {
 public:
  MetalEncoder(Device& device, std::shared_ptr<Context> context);
  ~MetalEncoder() override;

  Context& context() { return *context_; }
  /// Before a dispatch: a barrier where the op's record says so and none was put for it yet.
  void order();
  /// What the same op dispatches next reads what it has dispatched so far.
  void barrier();
  /// act_mul as a part of another op.
  void activate(const Tensor& y, const Tensor& gate, const Tensor& up, Activation act) { do_act_mul(y, gate, up, act); }
  MTL::ComputeCommandEncoder* compute() { return step_->encoder.get(); }
  /// Lengths of threadgroup memory stay set in Metal's encoder: a kernel that asks for none would pay for them.
  void set_threadgroup_memory(int slot, int64_t bytes);
  void clear_threadgroup_memory();
  /// After a dispatch: runs it at once, and times it, where the switch `metal_resident` is off.
  void dispatched(const Kernel& kernel);
  /// Before the dispatches of an op over many rows: counts its multiply-adds, and goes on in another command buffer
  /// where this one would pass the bound. A step of few rows, a decoded token, asks for none and stays whole.
  void work(int64_t multiply_adds);
  /// The most rows of a dispatch within that bound: a multiple of 64 where it allows, 16 at least.
  int64_t rows_in_bound(int64_t multiply_adds_per_row) const;

 protected:
  void do_embed(const Tensor& y, const Weight& table, const Tensor& ids, float scale) override;
  void do_rms_norm(const Tensor& y, const Tensor& x, const Tensor& w, float eps) override;
  void do_add(const Tensor& y, const Tensor& a, const Tensor& b) override;
  void do_act_mul(const Tensor& y, const Tensor& gate, const Tensor& up, Activation act) override;
  void do_linear(const Tensor& y, const Tensor& x, const Weight& w, const Tensor& bias) override;
  void do_rope(const Tensor& x, const Rope& rope, const Tensor& positions) override;
  void do_kv_append(const KvLayer& kv, const Tensor& k, const Tensor& v, const Batch& batch) override;
  void do_attention(const Tensor& y, const Tensor& q, const KvLayer& kv, const Batch& batch,
                    const AttentionParams& params) override;
  void do_gather_rows(const Tensor& y, const Tensor& x, const Tensor& rows) override;
  void do_softcap(const Tensor& x, float cap) override;
  void do_scale(const Tensor& x, float factor) override;
  void do_copy(const Tensor& y, const Tensor& x) override;
  void do_sigmoid_mul(const Tensor& y, const Tensor& x, const Tensor& gate) override;
  void do_per_layer_inputs(const Tensor& y, const Tensor& projected, const Tensor& embedded, const Tensor& w,
                           float eps) override;
  void do_causal_conv(const Tensor& y, const Tensor& x, const Tensor& w, const RecurrentLayer& state,
                      const Batch& batch) override;
  void do_qk_l2_norm(const Tensor& x, const DeltaHeads& heads) override;
  void do_delta_rule(const Tensor& y, const Tensor& qkv, const DeltaGates& gates, const DeltaHeads& heads,
                     const RecurrentLayer& state, const Batch& batch) override;
  void do_gated_norm(const Tensor& x, const Tensor& z, const Tensor& w, float eps) override;
  void do_route(const Routes& routes, const Tensor& logits, bool renormalize, const Tensor& expert_scale) override;
  void do_moe_gated(const Tensor& h, const Tensor& x, const Tensor& ids, const Experts& experts) override;
  void do_moe_down(const Tensor& y, const Tensor& h, const Routes& routes, const Tensor& shared, const Experts& experts,
                   bool add) override;
  void do_sample(const SampleArgs& args) override;
  void do_advance(const Batch& batch, const Tensor& ids) override;

  void do_linear_group(const Tensor& x, std::span<const LinearOut> outs) override;
  void do_linear_add(const Tensor& y, const Tensor& x, const Weight& w, const Tensor& bias) override;
  void do_linear_add_norm(const Tensor& y, const Tensor& z, const Tensor& x, const Weight& w, const Tensor& bias,
                          const Tensor& norm, float eps) override;
  void do_linear_gated(const Tensor& y, const Tensor& x, const Weight& gate, const Weight& up, const Tensor& gate_bias,
                       const Tensor& up_bias, Activation act) override;
  void do_norm_add(const Tensor& y, const Tensor& x, const Tensor& w, float eps) override;
  void do_norm_add_norm(const Tensor& y, const Tensor& z, const Tensor& x, const Tensor& w, const Tensor& w2, float eps,
                        float factor) override;
  void do_moe_down_norm(const Tensor& y, const Tensor& z, const Tensor& h, const Routes& routes, const Tensor& shared,
                        const Experts& experts, const Tensor& norm, float eps) override;
  void do_norm_group(const Tensor& x, std::span<const NormOut> outs, float eps) override;
  void do_attention_gated(const Tensor& y, const Tensor& q, const Tensor& gate, const KvLayer& kv, const Batch& batch,
                          const AttentionParams& params) override;
  void do_qk_rope_append(const Tensor& q, const Tensor& k, const Tensor& v, const QkNorm& norm, const Rope& rope,
                         const KvLayer& kv, const Batch& batch) override;
  void do_conv_qk_norm(const Tensor& y, const Tensor& x, const Tensor& w, const DeltaHeads& heads,
                       const RecurrentLayer& state, const Batch& batch) override;
  void do_delta_rule_norm(const Tensor& y, const Tensor& qkv, const DeltaGates& gates, const DeltaHeads& heads,
                          const Tensor& z, const Tensor& w, float eps, const RecurrentLayer& state,
                          const Batch& batch) override;

  bool has_fused(FusedOp op) const override;
  Tensor do_scratch(DType dtype, Shape shape) override { return step_->arena->take(dtype, shape); }
  Submission do_submit(bool interruptible) override;

 private:
  friend class OpScratch;

  std::shared_ptr<Context> context_;
  std::unique_ptr<Step> step_;
  size_t ordered_ = 0;   // records whose barrier stands
  size_t barriers_ = 0;  // and other points behind which all is done that was dispatched before
  // Of OpScratch.
  Tensor shared_;              // u8
  int64_t shared_used_ = 0;    // bytes that open scopes hold
  size_t shared_renewed_ = 0;  // how often it was too small
  size_t shared_free_ = 0;     // the barrier behind which what scopes have left may be written again

  uint32_t threadgroup_slots_ = 0;  // with a length, one bit each
  int64_t work_ = 0;                // multiply-adds that the command buffer holds
};

/// Scratch of one op, or of a part of it, as long as it is in scope: until the last dispatch that uses it is encoded.
/// Ops after it get the same bytes, with a barrier in front where none stands, so that a step needs as much as its
/// most demanding op, whatever the number of layers. Scopes nest.
class OpScratch {
 public:
  /// Of this dtype and shape each; two at most.
  OpScratch(MetalEncoder& encoder, std::initializer_list<std::pair<DType, Shape>> parts);
  ~OpScratch();
  OpScratch(const OpScratch&) = delete;
  OpScratch& operator=(const OpScratch&) = delete;

  const Tensor& operator[](size_t part) const { return parts_[part]; }

 private:
  MetalEncoder& encoder_;
  size_t renewed_;  // of its memory
  int64_t begin_;
  std::array<Tensor, 2> parts_;
};

}  // namespace saragossa::metal
