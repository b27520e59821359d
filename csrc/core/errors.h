#pragma once
// Errors of the core. The binding turns them into saragossa.errors classes by kind.

#include <sstream>
#include <stdexcept>
#include <string>

namespace saragossa {

enum class ErrorKind { usage, parameter, context, state, weights, device, internal };

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

/// message("rms_norm: weight has ", n, " values, expected ", m)
template <class... Parts>
std::string message(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <class... Parts>
[[noreturn]] void fail(ErrorKind kind, const Parts&... parts) {
  throw Error(kind, message(parts...));
}

/// For contracts inside the core: a failure is a bug of ours, not of the caller.
template <class... Parts>
void require(bool ok, const Parts&... parts) {
  if (!ok) fail(ErrorKind::internal, parts...);
}

}  // namespace saragossa
