#include <pybind11/stl.h>

#include <optional>

#include "python/bindings.h"

namespace saragossa {
namespace {

template <class T>
T field(const py::handle& from, const char* name) {
  return from.attr(name).cast<T>();
}

Activation activation_from(const std::string& name) {
  if (name == "silu") return Activation::silu;
  if (name == "gelu_tanh") return Activation::gelu_tanh;
  fail(ErrorKind::internal, "activation '", name, "'");
}

RopeSpec rope_from(const py::handle& r) {
  return {field<int64_t>(r, "dims"), field<std::vector<float>>(r, "inv_freq"), field<float>(r, "attention_factor")};
}

AttentionSpec attention_from(const py::handle& a) {
  AttentionSpec out;
  out.heads = field<int64_t>(a, "heads");
  out.kv_heads = field<int64_t>(a, "kv_heads");
  out.head_dim = field<int64_t>(a, "head_dim");
  out.scale = field<float>(a, "scale");
  out.rope = field<size_t>(a, "rope");
  out.window = field<int64_t>(a, "window");
  out.softcap = field<float>(a, "softcap");
  out.q_norm = field<bool>(a, "q_norm");
  out.k_norm = field<bool>(a, "k_norm");
  out.qkv_bias = field<bool>(a, "qkv_bias");
  out.o_bias = field<bool>(a, "o_bias");
  out.gate = field<bool>(a, "gate");
  out.v_norm = field<bool>(a, "v_norm");
  out.v_is_k = field<bool>(a, "v_is_k");
  out.kv_from = field<std::optional<size_t>>(a, "kv_from");
  return out;
}

DeltaSpec delta_from(const py::handle& d) {
  return {{field<int64_t>(d, "key_heads"), field<int64_t>(d, "value_heads"), field<int64_t>(d, "key_dim"),
           field<int64_t>(d, "value_dim")},
          field<int64_t>(d, "conv_width")};
}

MlpSpec mlp_from(const py::handle& m) {
  return {field<int64_t>(m, "intermediate"), activation_from(field<std::string>(m, "activation")),
          field<bool>(m, "bias")};
}

MoeSpec moe_from(const py::handle& m) {
  MoeSpec out;
  out.experts = field<int64_t>(m, "experts");
  out.top_k = field<int64_t>(m, "top_k");
  out.intermediate = field<int64_t>(m, "intermediate");
  out.activation = activation_from(field<std::string>(m, "activation"));
  out.renormalize = field<bool>(m, "renormalize");
  out.shared_intermediate = field<int64_t>(m, "shared_intermediate");
  out.shared_gate = field<bool>(m, "shared_gate");
  out.fused_gate_up = field<bool>(m, "fused_gate_up");
  out.router_norm = field<bool>(m, "router_norm");
  return out;
}

LayerSpec layer_from(const py::handle& l) {
  LayerSpec out;
  if (const py::object a = l.attr("attention"); !a.is_none()) out.attention = attention_from(a);
  if (const py::object d = l.attr("delta"); !d.is_none()) out.delta = delta_from(d);
  if (const py::object m = l.attr("mlp"); !m.is_none()) out.mlp = mlp_from(m);
  if (const py::object m = l.attr("moe"); !m.is_none()) out.moe = moe_from(m);
  out.post_norms = field<bool>(l, "post_norms");
  out.per_layer_input = field<int64_t>(l, "per_layer_input");
  out.layer_scalar = field<bool>(l, "layer_scalar");
  require(out.attention.has_value() != out.delta.has_value(), "spec: a layer is either attention or a delta net");
  require(out.mlp || out.moe, "spec: a layer without an MLP");
  require(!(out.mlp && out.moe) || out.post_norms, "spec: an MLP beside experts without post norms");
  require(!(out.layer_scalar || out.per_layer_input > 0) || (out.mlp && out.post_norms),
          "spec: a layer's scalar or own input without an MLP and post norms");
  return out;
}

/// Codes of the safetensors format.
DType dtype_from(const std::string& code) {
  if (code == "F32") return DType::f32;
  if (code == "F16") return DType::f16;
  if (code == "BF16") return DType::bf16;
  if (code == "U32") return DType::u32;
  if (code == "U8") return DType::u8;
  fail(ErrorKind::weights, "dtype ", code,
       " is not supported; supported are F32, F16, BF16, and U32 for codes, U8 for their powers of two");
}

}  // namespace

DecoderSpec decoder_spec_from(const py::handle& s) {
  DecoderSpec out;
  out.vocab = field<int64_t>(s, "vocab");
  out.hidden = field<int64_t>(s, "hidden");
  for (const py::handle layer : s.attr("layers")) out.layers.push_back(layer_from(layer));
  for (const py::handle rope : s.attr("ropes")) out.ropes.push_back(rope_from(rope));
  out.norm_eps = field<float>(s, "norm_eps");
  out.max_context = field<int64_t>(s, "max_context");
  out.embed_scale = field<float>(s, "embed_scale");
  out.final_softcap = field<float>(s, "final_softcap");
  out.tied = field<bool>(s, "tied");
  out.per_layer_vocab = field<int64_t>(s, "per_layer_vocab");
  if (const py::object mtp = s.attr("mtp"); !mtp.is_none())
    for (const py::handle layer : mtp.attr("layers")) out.mtp.push_back(layer_from(layer));
  if (const py::object block = s.attr("block"); !block.is_none()) {
    BlockSpec& b = out.block.emplace();
    for (const py::handle layer : block.attr("layers")) b.layers.push_back(layer_from(layer));
    b.taps = field<std::vector<size_t>>(block, "taps");
    b.size = field<int64_t>(block, "size");
    b.mask = field<int32_t>(block, "mask");
  }
  std::vector<const std::vector<LayerSpec>*> all{&out.layers, &out.mtp};
  if (out.block) all.push_back(&out.block->layers);
  for (const auto* layers : all)
    for (const LayerSpec& layer : *layers)
      if (layer.attention)
        require(layer.attention->rope < out.ropes.size(), "spec: rope ", layer.attention->rope, " of ",
                out.ropes.size());
  return out;
}

std::vector<BoundTensor> bound_tensors_from(const py::handle& tensors) {
  std::vector<BoundTensor> out;
  for (const py::handle t : tensors) {
    BoundTensor bound;
    bound.role = field<std::string>(t, "role");
    bound.shape = field<std::vector<int64_t>>(t, "shape");
    bound.bits = field<int>(t, "bits");
    if (bound.bits != 0) bound.format = format_named(field<std::string>(t, "kind"));
    bound.group = field<int>(t, "group_size");
    bound.plus_one = field<bool>(t, "plus_one");
    bound.rows = field<std::vector<std::pair<int64_t, int64_t>>>(t, "rows");
    bound.stack = field<int64_t>(t, "stack");
    bound.factor = field<float>(t, "factor");
    for (const py::handle part : t.attr("parts"))
      bound.parts.push_back({py::str(part.attr("file")).cast<std::string>(), field<int64_t>(part, "offset"),
                             field<int64_t>(part, "nbytes"), dtype_from(field<std::string>(part, "dtype"))});
    out.push_back(std::move(bound));
  }
  return out;
}

}  // namespace saragossa
