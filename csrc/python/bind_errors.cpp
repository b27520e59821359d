#include "core/errors.h"

#include "python/bindings.h"

namespace saragossa {
namespace {

const char* class_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage: return "UsageError";
    case ErrorKind::context: return "ContextLengthError";
    case ErrorKind::state: return "SnapshotNeededError";
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
      py::object error;
      if (e.kind() == ErrorKind::parameter) {
        // "name: what is wrong": the class wants the name apart.
        error = cls(text.substr(0, text.find_first_of(": ")), text);
      } else if (e.kind() == ErrorKind::context) {
        error = cls(py::arg("message") = text);
      } else {
        error = cls(text);
      }
      PyErr_SetObject(cls.ptr(), error.ptr());
    }
  });
}

}  // namespace saragossa
