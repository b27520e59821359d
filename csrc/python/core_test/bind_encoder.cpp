// CommandEncoder: every op of the contract, by its own name.

#include "encoder.h"

#include <pybind11/stl.h>

#include "python/core_test/core_test.h"

namespace saragossa {
namespace {

Activation activation_from(const std::string& name) {
  if (name == "silu") return Activation::silu;
  if (name == "gelu_tanh") return Activation::gelu_tanh;
  fail(ErrorKind::usage, "activation '", name, "' is unknown; supported are silu, gelu_tanh");
}

void register_values(py::module_& m) {
  py::class_<Rope>(m, "Rope").def(py::init<Tensor, float>(), py::arg("inv_freq"), py::arg("attention_factor") = 1.0f);
  py::class_<KvLayer>(m, "KvLayer")
      .def(py::init<Tensor, Tensor>(), py::arg("k"), py::arg("v"))
      .def_readonly("k", &KvLayer::k)
      .def_readonly("v", &KvLayer::v);
  py::class_<Batch>(m, "Batch")
      .def(py::init<Tensor, Tensor, Tensor, Tensor, int64_t, std::vector<int64_t>>(), py::kw_only(), py::arg("ids"),
           py::arg("positions"), py::arg("sequence"), py::arg("block_table"), py::arg("max_keys") = 0,
           py::arg("runs") = std::vector<int64_t>{})
      .def_readonly("ids", &Batch::ids)
      .def_readonly("positions", &Batch::positions);
  py::class_<AttentionParams>(m, "AttentionParams")
      .def(py::init<float, int64_t, float>(), py::kw_only(), py::arg("scale") = 1.0f, py::arg("window") = 0,
           py::arg("softcap") = 0.0f);
  py::class_<QkNorm>(m, "QkNorm")
      .def(py::init<Tensor, Tensor, float>(), py::arg("q") = Tensor{}, py::arg("k") = Tensor{}, py::arg("eps") = 0.0f);
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
           py::arg("eps"))
      .def("qk_rope_append", &E::qk_rope_append, py::arg("q"), py::arg("k"), py::arg("v"), py::arg("norm"),
           py::arg("rope"), py::arg("kv"), py::arg("batch"))
      .def(
          "submit", [](E& enc) { return enc.submit(); }, py::call_guard<py::gil_scoped_release>())
      .def("records", [](const E& e) { return e.records().ops(); });
}

}  // namespace saragossa
