#pragma once
// The typed specification of a dense decoder; src/saragossa/models/spec.py, field by field.

#include <cstdint>
#include <string>
#include <vector>

#include "encoder.h"

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
};

struct MlpSpec {
  int64_t intermediate = 0;
  Activation activation = Activation::silu;
  bool bias = false;
};

struct LayerSpec {
  AttentionSpec attention;
  MlpSpec mlp;
  bool post_norms = false;
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
};

}  // namespace saragossa
