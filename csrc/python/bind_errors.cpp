#include "core/errors.h"

#include "python/bindings.h"

namespace saragossa {
namespace {

const char* class_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
    case ErrorKind::context: return "UsageError";
    case ErrorKind::parameter: return "ParameterError";
    case ErrorKind::weights: return "WeightsError";
    case ErrorKind::device:
    case ErrorKind::internal: return "DeviceError";
  }
  return "DeviceError";
}

}  // namespace

void bind_errors(py::module_&) {
  py::register_local_exception_translator([](std::exception_ptr raised) {
    try {
      if (raised) std::rethrow_exception(raised);
    } catch (const Error& e) {
      const py::object cls = py::module_::import("saragossa.errors").attr(class_of(e.kind()));
      const std::string text = e.kind() == ErrorKind::internal ? std::string("internal error: ") + e.what() : e.what();
      if (e.kind() == ErrorKind::parameter) {
        // "name: what is wrong": the class wants the name apart.
        const py::object error = cls(text.substr(0, text.find_first_of(": ")), text);
        PyErr_SetObject(cls.ptr(), error.ptr());
      } else {
        PyErr_SetString(cls.ptr(), text.c_str());
      }
    }
  });
}

}  // namespace saragossa
