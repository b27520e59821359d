// Values of the gated delta net's and the experts' ops. The ops themselves are in bind_encoder.cpp.

#include <pybind11/stl.h>

#include "encoder.h"
#include "python/core_test/core_test.h"

namespace saragossa {

void register_delta(py::module_& m) {
  py::class_<RecurrentLayer>(m, "RecurrentLayer")
      .def(py::init<Tensor, Tensor>(), py::arg("conv") = Tensor{}, py::arg("delta") = Tensor{})
      .def_readonly("conv", &RecurrentLayer::conv)
      .def_readonly("delta", &RecurrentLayer::delta);
  py::class_<DeltaHeads>(m, "DeltaHeads")
      .def(py::init<int64_t, int64_t, int64_t, int64_t>(), py::kw_only(), py::arg("key_heads"), py::arg("value_heads"),
           py::arg("key_dim"), py::arg("value_dim"));
  py::class_<DeltaGates>(m, "DeltaGates")
      .def(py::init<Tensor, Tensor, Tensor, Tensor>(), py::arg("a"), py::arg("b"), py::arg("a_log"),
           py::arg("dt_bias"));
  py::class_<ExpertWeight>(m, "ExpertWeight")
      .def(py::init<Weight, int64_t, int64_t>(), py::arg("weight"), py::arg("stride"), py::arg("offset") = 0);
  py::class_<Experts>(m, "Experts")
      .def(py::init([](int64_t count, int64_t top_k, int64_t intermediate, const std::string& activation,
                       const ExpertWeight& gate, const ExpertWeight& up, const ExpertWeight& down,
                       int64_t shared_intermediate, const Weight& shared_gate, const Weight& shared_up,
                       const Weight& shared_down) {
             return Experts{count,       top_k,     intermediate, activation_from(activation),
                            gate,        up,        down,         shared_intermediate,
                            shared_gate, shared_up, shared_down};
           }),
           py::kw_only(), py::arg("count"), py::arg("top_k"), py::arg("intermediate"), py::arg("activation") = "silu",
           py::arg("gate"), py::arg("up"), py::arg("down"), py::arg("shared_intermediate") = 0,
           py::arg("shared_gate") = Weight{}, py::arg("shared_up") = Weight{}, py::arg("shared_down") = Weight{});
  py::class_<Routes>(m, "Routes").def(py::init<Tensor, Tensor>(), py::arg("ids"), py::arg("weights"));
  py::class_<NormOut>(m, "NormOut").def(py::init<Tensor, Tensor>(), py::arg("y"), py::arg("w"));
}

}  // namespace saragossa
