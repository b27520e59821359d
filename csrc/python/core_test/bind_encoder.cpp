// CommandEncoder: every op of the contract, by its own name.

#include "encoder.h"

#include <pybind11/stl.h>

#include <optional>

#include "python/core_test/core_test.h"

namespace saragossa {

Activation activation_from(const std::string& name) {
  if (name == "silu") return Activation::silu;
  if (name == "gelu_tanh") return Activation::gelu_tanh;
  fail(ErrorKind::usage, "activation '", name, "' is unknown; supported are silu, gelu_tanh");
}

namespace {

void register_values(py::module_& m) {
  py::class_<Rope>(m, "Rope").def(py::init<Tensor, float>(), py::arg("inv_freq"), py::arg("attention_factor") = 1.0f);
  py::class_<KvLayer>(m, "KvLayer")
      .def(py::init<Tensor, Tensor, Tensor, Tensor>(), py::arg("k"), py::arg("v"), py::arg("k_scales") = Tensor{},
           py::arg("v_scales") = Tensor{})
      .def_readonly("k", &KvLayer::k)
      .def_readonly("v", &KvLayer::v)
      .def_readonly("k_scales", &KvLayer::k_scales)
      .def_readonly("v_scales", &KvLayer::v_scales);
  py::class_<Batch>(m, "Batch")
      .def(py::init<Tensor, Tensor, Tensor, Tensor, int64_t, std::vector<int64_t>, Tensor, Tensor, Tensor>(),
           py::kw_only(), py::arg("ids"), py::arg("positions"), py::arg("sequence"), py::arg("block_table"),
           py::arg("max_keys") = 0, py::arg("runs") = std::vector<int64_t>{}, py::arg("run_starts") = Tensor{},
           py::arg("state_in") = Tensor{}, py::arg("state_out") = Tensor{})
      .def_readonly("ids", &Batch::ids)
      .def_readonly("positions", &Batch::positions);
  py::class_<AttentionParams>(m, "AttentionParams")
      .def(py::init<float, int64_t, float>(), py::kw_only(), py::arg("scale") = 1.0f, py::arg("window") = 0,
           py::arg("softcap") = 0.0f);
  py::class_<QkNorm>(m, "QkNorm")
      .def(py::init<Tensor, Tensor, float, Tensor>(), py::arg("q") = Tensor{}, py::arg("k") = Tensor{},
           py::arg("eps") = 0.0f, py::arg("v") = Tensor{});
  py::class_<LinearOut>(m, "LinearOut")
      .def(py::init(
               [](const Tensor& y, const Weight& weight, const Tensor& bias) { return LinearOut{y, &weight, bias}; }),
           py::arg("y"), py::arg("weight"), py::arg("bias") = Tensor{}, py::keep_alive<1, 3>());
  py::class_<OpRecord>(m, "OpRecord")
      .def_readonly("name", &OpRecord::name)
      .def_readonly("barrier", &OpRecord::barrier)
      .def_readonly("reads", &OpRecord::reads)
      .def_readonly("writes", &OpRecord::writes);
}

}  // namespace

void register_encoder(py::module_& m) {
  register_values(m);
  using E = CommandEncoder;
  const Tensor none;
  py::class_<E>(m, "CommandEncoder")
      .def("scratch",
           [](E& e, const std::vector<int64_t>& d) {
             if (d.size() == 2) return e.scratch(DType::f32, {d[0], d[1]});
             if (d.size() == 3) return e.scratch(DType::f32, {d[0], d[1], d[2]});
             fail(ErrorKind::usage, "scratch: 2 or 3 dimensions");
           })
      .def("embed", &E::embed, py::arg("y"), py::arg("table"), py::arg("ids"), py::arg("scale") = 1.0f)
      .def("rms_norm", &E::rms_norm, py::arg("y"), py::arg("x"), py::arg("w"), py::arg("eps"))
      .def("add", &E::add, py::arg("y"), py::arg("a"), py::arg("b"))
      .def("act_mul", [](E& e, const Tensor& y, const Tensor& gate, const Tensor& up,
                         const std::string& act) { e.act_mul(y, gate, up, activation_from(act)); })
      .def("linear", &E::linear, py::arg("y"), py::arg("x"), py::arg("w"), py::arg("bias") = none)
      .def("rope", &E::rope, py::arg("x"), py::arg("rope"), py::arg("positions"))
      .def("kv_append", &E::kv_append, py::arg("kv"), py::arg("k"), py::arg("v"), py::arg("batch"))
      .def("attention", &E::attention, py::arg("y"), py::arg("q"), py::arg("kv"), py::arg("batch"), py::arg("params"))
      .def("gather_rows", &E::gather_rows, py::arg("y"), py::arg("x"), py::arg("rows"))
      .def("softcap", &E::softcap, py::arg("x"), py::arg("cap"))
      .def(
          "sample",
          [](E& e, const Tensor& logits, const Tensor& params, const Tensor& ids, const Tensor& counts,
             const Tensor& bias_ids, const Tensor& bias, const Tensor& mask, const Tensor& logprobs,
             const Tensor& logprob_ids, const Tensor& rows, bool filtered) {
            e.sample({logits, rows, params, counts, bias_ids, bias, mask, ids, logprobs, logprob_ids, filtered});
          },
          py::arg("logits"), py::arg("params"), py::arg("ids"), py::kw_only(), py::arg("counts") = none,
          py::arg("bias_ids") = none, py::arg("bias") = none, py::arg("mask") = none, py::arg("logprobs") = none,
          py::arg("logprob_ids") = none, py::arg("rows") = none, py::arg("filtered") = true)
      .def("scale", &E::scale, py::arg("x"), py::arg("factor"))
      .def("copy", &E::copy, py::arg("y"), py::arg("x"))
      .def("sigmoid_mul", &E::sigmoid_mul, py::arg("y"), py::arg("x"), py::arg("gate"))
      .def("per_layer_inputs", &E::per_layer_inputs, py::arg("y"), py::arg("projected"), py::arg("embedded"),
           py::arg("w"), py::arg("eps"))
      .def("causal_conv", &E::causal_conv, py::arg("y"), py::arg("x"), py::arg("w"), py::arg("state"), py::arg("batch"))
      .def("qk_l2_norm", &E::qk_l2_norm, py::arg("x"), py::arg("heads"))
      .def("delta_rule", &E::delta_rule, py::arg("y"), py::arg("qkv"), py::arg("gates"), py::arg("heads"),
           py::arg("state"), py::arg("batch"))
      .def("gated_norm", &E::gated_norm, py::arg("x"), py::arg("z"), py::arg("w"), py::arg("eps"))
      .def("route", &E::route, py::arg("routes"), py::arg("logits"), py::arg("renormalize"),
           py::arg("expert_scale") = none)
      .def("moe_gated", &E::moe_gated, py::arg("h"), py::arg("x"), py::arg("ids"), py::arg("experts"))
      .def("moe_down", &E::moe_down, py::arg("y"), py::arg("h"), py::arg("routes"), py::arg("shared"),
           py::arg("experts"), py::arg("add"))
      .def(
          "norm_group",
          [](E& e, const Tensor& x, const std::vector<NormOut>& outs, float eps) { e.norm_group(x, outs, eps); },
          py::arg("x"), py::arg("outs"), py::arg("eps"))
      .def("attention_gated", &E::attention_gated, py::arg("y"), py::arg("q"), py::arg("gate"), py::arg("kv"),
           py::arg("batch"), py::arg("params"))
      .def("conv_qk_norm", &E::conv_qk_norm, py::arg("y"), py::arg("x"), py::arg("w"), py::arg("heads"),
           py::arg("state"), py::arg("batch"))
      .def("delta_rule_norm", &E::delta_rule_norm, py::arg("y"), py::arg("qkv"), py::arg("gates"), py::arg("heads"),
           py::arg("z"), py::arg("w"), py::arg("eps"), py::arg("state"), py::arg("batch"))
      .def("moe_down_norm", &E::moe_down_norm, py::arg("y"), py::arg("z"), py::arg("h"), py::arg("routes"),
           py::arg("shared"), py::arg("experts"), py::arg("norm"), py::arg("eps"))
      .def("advance", &E::advance, py::arg("batch"), py::arg("ids"))
      .def("linear_group", [](E& e, const Tensor& x, const std::vector<LinearOut>& outs) { e.linear_group(x, outs); })
      .def("linear_add", &E::linear_add, py::arg("y"), py::arg("x"), py::arg("w"), py::arg("bias") = none)
      .def("linear_add_norm", &E::linear_add_norm, py::arg("y"), py::arg("z"), py::arg("x"), py::arg("w"),
           py::arg("bias"), py::arg("norm"), py::arg("eps"))
      .def(
          "linear_gated",
          [](E& e, const Tensor& y, const Tensor& x, const Weight& gate, const Weight& up, const std::string& act,
             const Tensor& gate_bias,
             const Tensor& up_bias) { e.linear_gated(y, x, gate, up, gate_bias, up_bias, activation_from(act)); },
          py::arg("y"), py::arg("x"), py::arg("gate"), py::arg("up"), py::arg("act"), py::arg("gate_bias") = none,
          py::arg("up_bias") = none)
      .def("norm_add", &E::norm_add, py::arg("y"), py::arg("x"), py::arg("w"), py::arg("eps"))
      .def("norm_add_norm", &E::norm_add_norm, py::arg("y"), py::arg("z"), py::arg("x"), py::arg("w"), py::arg("w2"),
           py::arg("eps"), py::arg("scale") = 1.0f)
      .def(
          "qk_rope_append",
          [](E& e, const Tensor& q, const std::optional<Tensor>& k, const std::optional<Tensor>& v, const QkNorm& norm,
             const Rope& rope, const KvLayer& kv, const Batch& batch) {
            e.qk_rope_append(q, k.value_or(Tensor{}), v.value_or(Tensor{}), norm, rope, kv, batch);
          },
          py::arg("q"), py::arg("k"), py::arg("v"), py::arg("norm"), py::arg("rope"), py::arg("kv"), py::arg("batch"))
      .def(
          "submit", [](E& enc) { return enc.submit(); }, py::call_guard<py::gil_scoped_release>())
      .def("records", [](const E& e) { return e.records().ops(); });
}

}  // namespace saragossa
