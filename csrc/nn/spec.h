#pragma once
// The typed specification of a decoder; src/saragossa/models/spec.py, field by field.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device.h"
#include "op_types.h"

namespace saragossa {

struct RopeSpec {
  int64_t dims = 0;
  std::vector<float> inv_freq;
  float attention_factor = 1.0f;
};

struct AttentionSpec {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1.0f;
  size_t rope = 0;
  int64_t window = 0;
  float softcap = 0.0f;
  bool q_norm = false, k_norm = false, qkv_bias = false, o_bias = false;
  bool gate = false, v_norm = false, v_is_k = false;
  std::optional<size_t> kv_from;
  int64_t width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
};

struct DeltaSpec {
  DeltaHeads heads;
  int64_t conv_width = 0;
};

struct MlpSpec {
  int64_t intermediate = 0;
  Activation activation = Activation::silu;
  bool bias = false;
};

struct MoeSpec {
  int64_t experts = 0, top_k = 0, intermediate = 0;
  Activation activation = Activation::silu;
  bool renormalize = true;
  int64_t shared_intermediate = 0;
  bool shared_gate = false, fused_gate_up = false, router_norm = false;
  int64_t width() const { return top_k * intermediate + shared_intermediate; }
};

struct LayerSpec {
  std::optional<AttentionSpec> attention;
  std::optional<DeltaSpec> delta;
  std::optional<MlpSpec> mlp;
  std::optional<MoeSpec> moe;
  bool post_norms = false;
  int64_t per_layer_input = 0;
  bool layer_scalar = false;
  /// Input of the mixer's output projection.
  int64_t mixed_width() const { return attention ? attention->width() : delta->heads.values(); }
};

/// A block drafter (DFlash) that reads the states behind some of the decoder's layers.
struct BlockSpec {
  std::vector<LayerSpec> layers;
  std::vector<size_t> taps;  // layers whose states it reads, ascending; none of them the last
  int64_t size = 0;          // tokens of a block: the drawn one, then what stands for drafts
  int32_t mask = 0;          // the id that does
};

struct DecoderSpec {
  int64_t vocab = 0, hidden = 0;
  std::vector<LayerSpec> layers;
  std::vector<RopeSpec> ropes;
  float norm_eps = 0.0f;
  int64_t max_context = 0;
  float embed_scale = 1.0f;
  float final_softcap = 0.0f;
  bool tied = false;
  int64_t per_layer_vocab = 0;
  std::vector<LayerSpec> mtp;  // empty: no head for multi-token prediction
  std::optional<BlockSpec> block;
};

ModelSizes sizes_of(const DecoderSpec& spec);

}  // namespace saragossa
