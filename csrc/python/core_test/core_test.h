#pragma once
// Parts of the test-only module saragossa._core_test: the ops of the encoder on NumPy arrays.

#include <pybind11/pybind11.h>

#include "encoder.h"

namespace saragossa {

namespace py = pybind11;

void register_device(py::module_& m);
void register_encoder(py::module_& m);
void register_linear(py::module_& m);
void register_delta(py::module_& m);
void register_state(py::module_& m);

Activation activation_from(const std::string& name);

}  // namespace saragossa
