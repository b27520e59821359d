#pragma once
// The op contract: everything that a model's forward may do, at the level at which kernels are fused.
//
// A public method checks shapes and dtypes, records what it reads and writes, traces, and calls the
// backend's do_<op>. A fused op has its decomposition as the default body of do_<op>; Switches::fused
// = false takes that body on every backend. Activations are f32; T tokens of a step are rows.
// Per-step scalars (ids, positions, block tables, sampling parameters) live in device tensors, so a
// step can be encoded before the one in front of it has run.

#include <array>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "device.h"
#include "op_types.h"

namespace saragossa {

/// The ops that have a decomposition.
enum class FusedOp {
  linear_group,
  linear_add,
  linear_add_norm,
  linear_gated,
  norm_add,
  norm_add_norm,
  norm_group,
  qk_rope_append,
  attention_gated,
  conv_qk_norm,
  delta_rule_norm,
  moe_down_norm,
};

/// Tensors that a call was given, without those that are none. Not longer-lived than they are.
class TensorList {
 public:
  static constexpr size_t kCapacity = 24;  // linear_group has 17

  template <class... Parts>
  explicit TensorList(const Parts&... parts) {
    static_assert(((std::is_same_v<Parts, Weight> ? 3 : 1) + ... + 0) <= static_cast<int>(kCapacity));
    (add(parts), ...);
  }
  void add(const Tensor& t) {
    if (!t) return;
    require(size_ < kCapacity, "an op with more than ", kCapacity, " tensors");
    list_[size_++] = &t;
  }
  void add(const Weight& w) {
    add(w.data);
    add(w.scales);
    add(w.biases);
  }
  size_t size() const { return size_; }
  const Tensor* const* begin() const { return list_.data(); }
  const Tensor* const* end() const { return list_.data() + size_; }

 private:
  std::array<const Tensor*, kCapacity> list_;
  size_t size_ = 0;
};

/// Bytes of a buffer.
struct Touch {
  std::shared_ptr<Buffer> buffer;
  int64_t begin = 0, end = 0;
};

/// An op and what it touched: for barriers, and for traces and tests.
struct OpRecord {
  const char* name = "";
  bool barrier = false;  // conflicts with an op since the last barrier
  size_t first = 0;      // its touches: reads, then writes
  size_t reads = 0, writes = 0;
};

/// The ops of a submission; their touches lie together, since a step has hundreds of them.
class OpRecords {
 public:
  const std::vector<OpRecord>& ops() const { return ops_; }
  std::span<const Touch> reads(const OpRecord& op) const { return {touches_.data() + op.first, op.reads}; }
  std::span<const Touch> writes(const OpRecord& op) const { return {touches_.data() + op.first + op.reads, op.writes}; }

  void push(const char* name, const TensorList& reads, const TensorList& writes);

 private:
  void touch(const Tensor& t) { touches_.push_back({t.buffer, t.offset, t.offset + t.nbytes()}); }

  std::vector<OpRecord> ops_;
  std::vector<Touch> touches_;
  size_t since_barrier_ = 0;  // first op after the last barrier
};

class CommandEncoder {
 public:
  explicit CommandEncoder(Device& device) : device_(device) {}
  virtual ~CommandEncoder() = default;
  CommandEncoder(const CommandEncoder&) = delete;
  CommandEncoder& operator=(const CommandEncoder&) = delete;

  Device& device() { return device_; }

  /// Scratch that lives until the submission was waited for, or is gone. Not zeroed.
  Tensor scratch(DType dtype, Shape shape);

  // --- simple ops -------------------------------------------------------------------------------
  /// y[t] = table[ids[t]] * scale. An id outside the table gives a row of NaN.
  void embed(const Tensor& y, const Weight& table, const Tensor& ids, float scale);
  /// y = x / sqrt(mean(x^2) + eps) * w over the last dimension; y may be x.
  void rms_norm(const Tensor& y, const Tensor& x, const Tensor& w, float eps);
  /// y = a + b; y may be a or b.
  void add(const Tensor& y, const Tensor& a, const Tensor& b);
  /// y = act(gate) * up; y may be gate or up.
  void act_mul(const Tensor& y, const Tensor& gate, const Tensor& up, Activation act);
  /// y = x W^T + bias.
  void linear(const Tensor& y, const Tensor& x, const Weight& w, const Tensor& bias = {});
  /// In place on x f32 [T, heads, head_dim].
  void rope(const Tensor& x, const Rope& rope, const Tensor& positions);
  /// k, v f32 [T, kv_heads, head_dim] into the cache at each row's position.
  void kv_append(const KvLayer& kv, const Tensor& k, const Tensor& v, const Batch& batch);
  /// y[t, h] = softmax(scale q k^T) v; y, q f32 [T, heads, head_dim]; heads share kv_heads in runs.
  void attention(const Tensor& y, const Tensor& q, const KvLayer& kv, const Batch& batch,
                 const AttentionParams& params);
  /// y[r] = x[rows[r]].
  void gather_rows(const Tensor& y, const Tensor& x, const Tensor& rows);
  /// x = cap * tanh(x / cap), in place.
  void softcap(const Tensor& x, float cap);
  /// x *= factor, in place.
  void scale(const Tensor& x, float factor);
  void copy(const Tensor& y, const Tensor& x);
  /// y = x * sigmoid(gate); y may be x.
  void sigmoid_mul(const Tensor& y, const Tensor& x, const Tensor& gate);
  /// Gemma 4: y[l, t] = (rms_norm(projected[t, l], w) + embedded[t, l]) / sqrt(2); y f32 [layers, T, n], the others
  /// [T, layers * n].
  void per_layer_inputs(const Tensor& y, const Tensor& projected, const Tensor& embedded, const Tensor& w, float eps);
  /// Depthwise causal convolution of x f32 [T, channels] by w f32 [channels, width], then silu. What stands in front of
  /// a run comes from the state, the last inputs go to it.
  void causal_conv(const Tensor& y, const Tensor& x, const Tensor& w, const RecurrentLayer& state, const Batch& batch);
  /// In place on x f32 [T, channels]: q and k heads divided by sqrt(sum of squares + 1e-6), q times key_dim^-0.5.
  void qk_l2_norm(const Tensor& x, const DeltaHeads& heads);
  /// Gated delta rule (arXiv 2412.06464) per value head, in float32: S = decay S; S += beta (v - S k) k^T; y = S q.
  /// y f32 [T, value_heads * value_dim], qkv f32 [T, channels] as the two ops before leave it.
  void delta_rule(const Tensor& y, const Tensor& qkv, const DeltaGates& gates, const DeltaHeads& heads,
                  const RecurrentLayer& state, const Batch& batch);
  /// x = rms_norm(x) * w * silu(z) per head, in place; x, z f32 [T, heads * n], w f32 [n].
  void gated_norm(const Tensor& x, const Tensor& z, const Tensor& w, float eps);
  /// softmax of logits f32 [T, count], the top_k best of each row; renormalize: their weights sum to one. Times
  /// expert_scale f32 [count], where there is one. A row with a NaN has weights of NaN.
  void route(const Routes& routes, const Tensor& logits, bool renormalize, const Tensor& expert_scale = {});
  /// h f32 [T, width] = act(gate x) * up x of each row's experts, then of the shared one.
  void moe_gated(const Tensor& h, const Tensor& x, const Tensor& ids, const Experts& experts);
  /// y = (add: y +) sum of weight * down h over the row's experts, in their order; + sigmoid(shared) * shared_down h.
  /// shared f32 [T, 1]: none: 1.
  void moe_down(const Tensor& y, const Tensor& h, const Routes& routes, const Tensor& shared, const Experts& experts,
                bool add);
  void sample(const SampleArgs& args);
  /// The drawn ids feed the next step: batch.ids[t] = ids[t], batch.positions[t] += 1.
  void advance(const Batch& batch, const Tensor& ids);

  // --- fused ops: the default is their decomposition ----------------------------------------------
  /// Up to four linears of one input.
  void linear_group(const Tensor& x, std::span<const LinearOut> outs);
  /// y += x W^T + bias.
  void linear_add(const Tensor& y, const Tensor& x, const Weight& w, const Tensor& bias = {});
  /// y += x W^T + bias, then z = rms_norm(y, norm). z is none of the others.
  void linear_add_norm(const Tensor& y, const Tensor& z, const Tensor& x, const Weight& w, const Tensor& bias,
                       const Tensor& norm, float eps);
  /// y = act(x Wg^T + bg) * (x Wu^T + bu).
  void linear_gated(const Tensor& y, const Tensor& x, const Weight& gate, const Weight& up, const Tensor& gate_bias,
                    const Tensor& up_bias, Activation act);
  /// y += rms_norm(x).
  void norm_add(const Tensor& y, const Tensor& x, const Tensor& w, float eps);
  /// y = (y + rms_norm(x, w)) * scale, then z = rms_norm(y, w2).
  void norm_add_norm(const Tensor& y, const Tensor& z, const Tensor& x, const Tensor& w, const Tensor& w2, float eps,
                     float scale = 1.0f);
  /// Up to three norms of one input.
  void norm_group(const Tensor& x, std::span<const NormOut> outs, float eps);
  /// attention, then y *= sigmoid(gate); gate f32 as y.
  void attention_gated(const Tensor& y, const Tensor& q, const Tensor& gate, const KvLayer& kv, const Batch& batch,
                       const AttentionParams& params);
  /// causal_conv, then qk_l2_norm.
  void conv_qk_norm(const Tensor& y, const Tensor& x, const Tensor& w, const DeltaHeads& heads,
                    const RecurrentLayer& state, const Batch& batch);
  /// delta_rule, then gated_norm by z and w.
  void delta_rule_norm(const Tensor& y, const Tensor& qkv, const DeltaGates& gates, const DeltaHeads& heads,
                       const Tensor& z, const Tensor& w, float eps, const RecurrentLayer& state, const Batch& batch);
  /// moe_down with add, then z = rms_norm(y, norm).
  void moe_down_norm(const Tensor& y, const Tensor& z, const Tensor& h, const Routes& routes, const Tensor& shared,
                     const Experts& experts, const Tensor& norm, float eps);
  /// Norm of q, k and v heads, rope of q and k, k and v appended. v none: it is k as it comes. k none: q alone, the
  /// cache is another layer's. What v holds afterwards is left open.
  void qk_rope_append(const Tensor& q, const Tensor& k, const Tensor& v, const QkNorm& norm, const Rope& rope,
                      const KvLayer& kv, const Batch& batch);

  /// Hands the ops over; the encoder is spent. The destructor of an encoder that was not submitted drops them.
  /// interruptible: the device's interrupt check may end it half-way; what it writes is then undefined.
  Submission submit(bool interruptible = false);

  const OpRecords& records() const { return records_; }

 protected:
  virtual void do_embed(const Tensor& y, const Weight& table, const Tensor& ids, float scale) = 0;
  virtual void do_rms_norm(const Tensor& y, const Tensor& x, const Tensor& w, float eps) = 0;
  virtual void do_add(const Tensor& y, const Tensor& a, const Tensor& b) = 0;
  virtual void do_act_mul(const Tensor& y, const Tensor& gate, const Tensor& up, Activation act) = 0;
  virtual void do_linear(const Tensor& y, const Tensor& x, const Weight& w, const Tensor& bias) = 0;
  virtual void do_rope(const Tensor& x, const Rope& rope, const Tensor& positions) = 0;
  virtual void do_kv_append(const KvLayer& kv, const Tensor& k, const Tensor& v, const Batch& batch) = 0;
  virtual void do_attention(const Tensor& y, const Tensor& q, const KvLayer& kv, const Batch& batch,
                            const AttentionParams& params) = 0;
  virtual void do_gather_rows(const Tensor& y, const Tensor& x, const Tensor& rows) = 0;
  virtual void do_softcap(const Tensor& x, float cap) = 0;
  virtual void do_scale(const Tensor& x, float factor) = 0;
  virtual void do_copy(const Tensor& y, const Tensor& x) = 0;
  virtual void do_sigmoid_mul(const Tensor& y, const Tensor& x, const Tensor& gate) = 0;
  virtual void do_per_layer_inputs(const Tensor& y, const Tensor& projected, const Tensor& embedded, const Tensor& w,
                                   float eps) = 0;
  virtual void do_causal_conv(const Tensor& y, const Tensor& x, const Tensor& w, const RecurrentLayer& state,
                              const Batch& batch) = 0;
  virtual void do_qk_l2_norm(const Tensor& x, const DeltaHeads& heads) = 0;
  virtual void do_delta_rule(const Tensor& y, const Tensor& qkv, const DeltaGates& gates, const DeltaHeads& heads,
                             const RecurrentLayer& state, const Batch& batch) = 0;
  virtual void do_gated_norm(const Tensor& x, const Tensor& z, const Tensor& w, float eps) = 0;
  virtual void do_route(const Routes& routes, const Tensor& logits, bool renormalize, const Tensor& expert_scale) = 0;
  virtual void do_moe_gated(const Tensor& h, const Tensor& x, const Tensor& ids, const Experts& experts) = 0;
  virtual void do_moe_down(const Tensor& y, const Tensor& h, const Routes& routes, const Tensor& shared,
                           const Experts& experts, bool add) = 0;
  virtual void do_sample(const SampleArgs& args) = 0;
  virtual void do_advance(const Batch& batch, const Tensor& ids) = 0;

  virtual void do_linear_group(const Tensor& x, std::span<const LinearOut> outs);
  virtual void do_linear_add(const Tensor& y, const Tensor& x, const Weight& w, const Tensor& bias);
  virtual void do_linear_add_norm(const Tensor& y, const Tensor& z, const Tensor& x, const Weight& w,
                                  const Tensor& bias, const Tensor& norm, float eps);
  virtual void do_linear_gated(const Tensor& y, const Tensor& x, const Weight& gate, const Weight& up,
                               const Tensor& gate_bias, const Tensor& up_bias, Activation act);
  virtual void do_norm_add(const Tensor& y, const Tensor& x, const Tensor& w, float eps);
  virtual void do_norm_add_norm(const Tensor& y, const Tensor& z, const Tensor& x, const Tensor& w, const Tensor& w2,
                                float eps, float scale);
  virtual void do_norm_group(const Tensor& x, std::span<const NormOut> outs, float eps);
  virtual void do_attention_gated(const Tensor& y, const Tensor& q, const Tensor& gate, const KvLayer& kv,
                                  const Batch& batch, const AttentionParams& params);
  virtual void do_conv_qk_norm(const Tensor& y, const Tensor& x, const Tensor& w, const DeltaHeads& heads,
                               const RecurrentLayer& state, const Batch& batch);
  virtual void do_delta_rule_norm(const Tensor& y, const Tensor& qkv, const DeltaGates& gates, const DeltaHeads& heads,
                                  const Tensor& z, const Tensor& w, float eps, const RecurrentLayer& state,
                                  const Batch& batch);
  virtual void do_moe_down_norm(const Tensor& y, const Tensor& z, const Tensor& h, const Routes& routes,
                                const Tensor& shared, const Experts& experts, const Tensor& norm, float eps);
  virtual void do_qk_rope_append(const Tensor& q, const Tensor& k, const Tensor& v, const QkNorm& norm,
                                 const Rope& rope, const KvLayer& kv, const Batch& batch);

  /// Whether the backend overrides do_<op>; where it does not, the parts of the decomposition are recorded.
  virtual bool has_fused(FusedOp op) const = 0;
  virtual Tensor do_scratch(DType dtype, Shape shape) = 0;
  virtual Submission do_submit(bool interruptible) = 0;
  /// For do_submit: a submission that outlives the encoder keeps what its ops touch.
  OpRecords take_records() { return std::move(records_); }

 private:
  void record(const char* name, const TensorList& reads, const TensorList& writes);
  bool fused() const { return device_.switches().fused; }

  Device& device_;
  OpRecords records_;
  bool submitted_ = false;
};

}  // namespace saragossa
