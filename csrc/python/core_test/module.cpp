#include "core/errors.h"

#include "python/core_test/core_test.h"

PYBIND11_MODULE(_core_test, m) {
  m.doc() = "The ops of the core, for tests and benches of them; not part of the package.";
  pybind11::register_exception<saragossa::Error>(m, "CoreError", PyExc_RuntimeError);
  saragossa::register_device(m);
  saragossa::register_linear(m);
  saragossa::register_delta(m);
  saragossa::register_state(m);
  saragossa::register_encoder(m);
}
