#include "python/bindings.h"

PYBIND11_MODULE(_core, m) {
  m.doc() = "The C++ core of saragossa: devices, models, sessions.";
  m.attr("__version__") = SARAGOSSA_VERSION;
  saragossa::bind_errors(m);
  saragossa::bind_device(m);
  saragossa::bind_model(m);
  saragossa::bind_session(m);
  saragossa::bind_drafter(m);
}
