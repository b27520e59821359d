#pragma once
// The encoder of the CPU device: ops become closures over raw pointers, which submit runs in order.

#include <memory>
#include <mutex>
#include <vector>

#include "cpu/command_list.h"
#include "cpu/cpu_buffer.h"
#include "cpu/executor.h"
#include "encoder.h"

namespace saragossa::cpu {

/// What a submission owns and the next one takes over.
struct Resources {
  explicit Resources(bool poison) : arena(poison) {}
  Arena arena;
  CommandList<Executor> commands;
};

/// Resources that no submission holds.
class ResourcePool {
 public:
  explicit ResourcePool(bool poison) : poison_(poison) {}
  std::unique_ptr<Resources> take();
  void give(std::unique_ptr<Resources> resources);

 private:
  bool poison_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Resources>> free_;
};

class CpuEncoder final : public CommandEncoder {
 public:
  CpuEncoder(Device& device, std::shared_ptr<Executor> executor, std::shared_ptr<ResourcePool> pool);
  ~CpuEncoder() override;

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
  void do_linear_gated(const Tensor& y, const Tensor& x, const Weight& gate, const Weight& up, const Tensor& gate_bias,
                       const Tensor& up_bias, Activation act) override;
  void do_norm_add(const Tensor& y, const Tensor& x, const Tensor& w, float eps) override;
  void do_norm_add_norm(const Tensor& y, const Tensor& z, const Tensor& x, const Tensor& w, const Tensor& w2, float eps,
                        float factor) override;
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
  Tensor do_scratch(DType dtype, Shape shape) override { return resources_->arena.take(dtype, shape); }
  Submission do_submit(bool interruptible) override;

 private:
  template <class Fn>
  void push(const Fn& fn) {
    resources_->commands.push(fn);
  }
  void push_linear(const LinearJob& job);
  /// The exact mode: continuing a sequence equals a fresh prefill, bit for bit.
  bool exact() { return device().switches().activations == Activations::f32; }
  /// Into the ring of what is fetched ahead; `pushed` lies in resources_.
  void link(LinearJob& pushed);

  std::shared_ptr<Executor> executor_;
  std::shared_ptr<ResourcePool> pool_;
  std::unique_ptr<Resources> resources_;
  // In resources_.
  LinearJob* first_linear_ = nullptr;
  LinearJob* last_linear_ = nullptr;
};

}  // namespace saragossa::cpu
