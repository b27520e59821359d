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
#include "params/sample.h"
#include "quant/weight.h"

namespace saragossa {

enum class Activation { silu, gelu_tanh };

/// One output of linear_group: y = x W^T + bias.
struct LinearOut {
  Tensor y;  // f32 [T, out]
  const Weight* weight = nullptr;
  Tensor bias;  // f32 [out] or none
};

/// Rotary embedding, half-split pairing: channel i of `dims` rotates with i + dims / 2.
struct Rope {
  Tensor inv_freq;  // f32 [dims / 2]
  float attention_factor = 1.0f;
};

/// K and V of one layer, in blocks that sequences share.
struct KvLayer {
  Tensor k;  // bf16 or f32 [blocks, kv_heads, block_tokens, head_dim]
  Tensor v;
  int64_t block_tokens() const { return k.shape[2]; }
};

/// The tokens of one step. Row t belongs to sequence[t], stands at positions[t] and sees the keys
/// 0..positions[t] of that sequence; rows of one sequence are consecutive, positions ascend by one.
struct Batch {
  Tensor ids;            // i32 [T]
  Tensor positions;      // i32 [T]
  Tensor sequence;       // i32 [T], row of block_table
  Tensor block_table;    // i32 [S, max_blocks]: block of position p is block_table[s, p / block_tokens]
  int64_t max_keys = 0;  // upper bound of positions + 1, for choosing a kernel
  // The same for the host, for choosing kernels: rows of each sequence, in order; empty: not told.
  std::vector<int64_t> runs;
  int64_t tokens() const { return ids.shape[0]; }
};

struct AttentionParams {
  float scale = 1.0f;
  int64_t window = 0;    // keys a query sees, itself included; 0: all
  float softcap = 0.0f;  // cap * tanh(s / cap); 0: none
};

/// Norm weights [head_dim] of q and k are optional.
struct QkNorm {
  Tensor q;
  Tensor k;
  float eps = 0.0f;
};

/// Sampling of R rows; all tensors on the device. What belongs to a request (params, counts, bias, mask) has S rows:
/// logits row r draws with row rows[r] of them, no two with the same one.
struct SampleArgs {
  Tensor logits;       // f32 [R, V]; read only
  Tensor rows;         // i32 [R] or none: r, and S is R
  Tensor params;       // u8 [S, sizeof(SampleParams)]; step is advanced
  Tensor counts;       // u32 [S, V] or none (no penalties): see SG_COUNT_PROMPT; the drawn id is counted
  Tensor bias_ids;     // i32 [S, B] or none; a row has the first n_bias of its params
  Tensor bias;         // f32 [S, B]
  Tensor mask;         // u32 [S, (V + 31) / 32] or none: bit set = allowed
  Tensor ids;          // out i32 [R]; SG_SAMPLE_NAN where a logit is NaN
  Tensor logprobs;     // out f32 [R, 1 + N] or none: the drawn id's, then the N best; natural log, of the raw logits
  Tensor logprob_ids;  // out i32 [R, 1 + N]
  /// false: the caller knows that no row has top-k, top-p or min-p, which a device may then leave out.
  bool filtered = true;
};

/// The ops that have a decomposition.
enum class FusedOp { linear_group, linear_add, linear_add_norm, linear_gated, norm_add, norm_add_norm, qk_rope_append };

/// Tensors that a call was given, without those that are none. Not longer-lived than they are.
class TensorList {
 public:
  static constexpr size_t kCapacity = 16;  // linear_group has 13

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
  void sample(const SampleArgs& args);
  /// The drawn ids feed the next step: batch.ids[t] = ids[t], batch.positions[t] += 1.
  void advance(const Batch& batch, const Tensor& ids);

  // --- fused ops: the default is their decomposition ----------------------------------------------
  /// Up to three linears of one input.
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
  /// y += rms_norm(x, w), then z = rms_norm(y, w2).
  void norm_add_norm(const Tensor& y, const Tensor& z, const Tensor& x, const Tensor& w, const Tensor& w2, float eps);
  /// Norm of q and k heads, rope of both, k and v appended.
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
                                float eps);
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
