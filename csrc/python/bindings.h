#pragma once
// Parts of the module saragossa._core. No tensors and no ops cross the boundary.

#include <pybind11/pybind11.h>

#include "nn/spec.h"
#include "weights/bound_tensor.h"

namespace saragossa {

namespace py = pybind11;

/// Lets go of the GIL. While the interpreter ends, a thread that would take it again is parked for good: Python before
/// 3.14 ends such a thread by unwinding it, which a destructor does not survive.
class ReleasedGil {
 public:
  ReleasedGil() : state_(PyEval_SaveThread()) {}
  ~ReleasedGil() noexcept(false) {
    park_if_finalizing();
    PyEval_RestoreThread(state_);
  }
  ReleasedGil(const ReleasedGil&) = delete;
  ReleasedGil& operator=(const ReleasedGil&) = delete;

  static void park_if_finalizing();

 private:
  PyThreadState* state_;
};

/// Reads saragossa.models.spec.DecoderSpec by field name.
DecoderSpec decoder_spec_from(const py::handle& spec);
/// Reads saragossa.weights.bind.BoundTensor values by field name.
std::vector<BoundTensor> bound_tensors_from(const py::handle& tensors);

void bind_errors(py::module_& m);
void bind_device(py::module_& m);
void bind_model(py::module_& m);
void bind_session(py::module_& m);
void bind_drafter(py::module_& m);

}  // namespace saragossa
