#pragma once
// What the ops of the contract (encoder.h) take: plain values.

#include <vector>

#include "core/tensor.h"
#include "params/kv.h"
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
  Tensor k;  // bf16, f32 or u8 [blocks, kv_heads, block_tokens, head_dim]
  Tensor v;
  // Of u8: bf16 [blocks, kv_heads, block_tokens, 2 * groups], step and zero of each SG_KV_GROUP channels of a row:
  // x = code * step + zero. Both are rounded outward, so that codes reach the group's ends; the product is exact in
  // f32. A group with a value that is not finite is NaN.
  Tensor k_scales = {};
  Tensor v_scales = {};
  int64_t block_tokens() const { return k.shape[2]; }
};

/// Numbers of k_scales for a row of `head_dim` codes.
constexpr int64_t kv_scales(int64_t head_dim) { return 2 * ((head_dim + SG_KV_GROUP - 1) / SG_KV_GROUP); }

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

  // Of models with recurrent layers; `runs` is told then. Slots are rows of a RecurrentLayer's tensors.
  Tensor run_starts;  // i32 [runs + 1]: the first row of each run, then T
  Tensor state_in;    // i32 [S]: slot of the state in front of the sequence's first row; -1: zeros
  // i32 [T]: slot that gets the state after the row, -1: none. A run of more than 8 rows has one at its last row only.
  // It may be the slot that the sequence reads; else no two rows name one, nor does another sequence read it.
  Tensor state_out;
  int64_t tokens() const { return ids.shape[0]; }
};

struct AttentionParams {
  float scale = 1.0f;
  int64_t window = 0;    // keys a query sees, itself included; 0: all
  float softcap = 0.0f;  // cap * tanh(s / cap); 0: none
};

/// Norm weights [head_dim] of q, k and v are optional.
struct QkNorm {
  Tensor q;
  Tensor k;
  float eps = 0.0f;
  Tensor v = {};
};

constexpr int64_t kMostConvWidth = 16;
constexpr int64_t kMostKeptRows = 8;  // rows of a run of which each may keep its state

/// State of one gated delta net layer; a slot is the state of one sequence at one moment.
struct RecurrentLayer {
  Tensor conv;   // f32 [slots, width - 1, channels]: the last inputs of the convolution, oldest first
  Tensor delta;  // f32 [slots, value_heads, value_dim, key_dim]
};

/// Heads of a gated delta net. Value head h goes with key head h / (value_heads / key_heads).
struct DeltaHeads {
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  int64_t keys() const { return key_heads * key_dim; }
  int64_t values() const { return value_heads * value_dim; }
  /// q, k, v of a row, one after another.
  int64_t channels() const { return 2 * keys() + values(); }
};

/// What the delta rule is told of each value head and row.
struct DeltaGates {
  Tensor a;        // f32 [T, value_heads]: decay exp(-exp(a_log) softplus(a + dt_bias))
  Tensor b;        // f32 [T, value_heads]: beta = sigmoid(b)
  Tensor a_log;    // f32 [value_heads]
  Tensor dt_bias;  // f32 [value_heads]
};

/// A matrix of each expert, in one weight: rows [e * stride + offset, e * stride + offset + n) are expert e's n.
struct ExpertWeight {
  Weight weight;
  int64_t stride = 0, offset = 0;
};

/// Gated MLPs of which a row uses `top_k`, and one that all rows use.
struct Experts {
  int64_t count = 0, top_k = 0, intermediate = 0;
  Activation activation = Activation::silu;
  ExpertWeight gate, up, down;      // [intermediate, hidden] twice, [hidden, intermediate]
  int64_t shared_intermediate = 0;  // 0: no shared expert
  Weight shared_gate, shared_up, shared_down;
  /// Activations of a row: of its experts in the order of their ids, then of the shared one.
  int64_t width() const { return top_k * intermediate + shared_intermediate; }
};

/// Where a row goes: its experts in descending order of probability, equal ones by index.
struct Routes {
  Tensor ids;      // i32 [T, top_k]
  Tensor weights;  // f32 [T, top_k]
};

/// One output of norm_group.
struct NormOut {
  Tensor y;
  Tensor w;
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

}  // namespace saragossa
