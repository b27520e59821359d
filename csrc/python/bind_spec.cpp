#include <pybind11/stl.h>

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

LayerSpec layer_from(const py::handle& l) {
  const py::object a = l.attr("attention"), m = l.attr("mlp");
  LayerSpec out;
  out.attention.heads = field<int64_t>(a, "heads");
  out.attention.kv_heads = field<int64_t>(a, "kv_heads");
  out.attention.head_dim = field<int64_t>(a, "head_dim");
  out.attention.scale = field<float>(a, "scale");
  out.attention.rope = field<size_t>(a, "rope");
  out.attention.window = field<int64_t>(a, "window");
  out.attention.softcap = field<float>(a, "softcap");
  out.attention.q_norm = field<bool>(a, "q_norm");
  out.attention.k_norm = field<bool>(a, "k_norm");
  out.attention.qkv_bias = field<bool>(a, "qkv_bias");
  out.attention.o_bias = field<bool>(a, "o_bias");
  out.mlp.intermediate = field<int64_t>(m, "intermediate");
  out.mlp.activation = activation_from(field<std::string>(m, "activation"));
  out.mlp.bias = field<bool>(m, "bias");
  out.post_norms = field<bool>(l, "post_norms");
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
  for (const LayerSpec& layer : out.layers)
    require(layer.attention.rope < out.ropes.size(), "spec: rope ", layer.attention.rope, " of ", out.ropes.size());
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
    for (const py::handle part : t.attr("parts"))
      bound.parts.push_back({py::str(part.attr("file")).cast<std::string>(), field<int64_t>(part, "offset"),
                             field<int64_t>(part, "nbytes"), dtype_from(field<std::string>(part, "dtype"))});
    out.push_back(std::move(bound));
  }
  return out;
}

}  // namespace saragossa
