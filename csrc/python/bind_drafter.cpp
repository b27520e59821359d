#include <pybind11/stl.h>

#include "python/bindings.h"
#include "runtime/drafter.h"

namespace saragossa {

void bind_drafter(py::module_& m) {
  using Release = py::call_guard<ReleasedGil>;
  py::class_<Drafter>(m, "Drafter", py::module_local())
      .def("propose", &Drafter::propose, py::arg("session"), py::arg("row"), py::arg("most"), Release());
  py::class_<LookupDrafter, Drafter>(m, "LookupDrafter", py::module_local())
      .def(py::init<int64_t, int64_t>(), py::arg("shortest") = 2, py::arg("longest") = 8);
  py::class_<MtpDrafter, Drafter>(m, "MtpDrafter", py::module_local()).def(py::init<>());
  py::class_<BlockDrafter, Drafter>(m, "BlockDrafter", py::module_local()).def(py::init<>());
  py::class_<ModelDrafter, Drafter>(m, "ModelDrafter", py::module_local())
      .def(py::init<std::shared_ptr<Model>, int64_t, int64_t>(), py::arg("model"), py::arg("context"),
           py::arg("chunk") = 512, Release());
}

}  // namespace saragossa
