#pragma once
// Metal source text -> kernels that run here.
//
//   auto result = compile({.source = text});            // log holds errors and warnings in the form file:line: ...
//   auto kernel = result.library->kernel("rms_norm", {{0, bytes_of(true)}}, error);
//
// clang's preprocessor, the rewriter, clang again; the shared object stays in a cache folder, by the hash of all that
// went in (SARAGOSSA_METAL_EMULATOR_CACHE, else <user cache>/saragossa-metal-emulator; the oldest files go above 1 GB).
// Several processes may share it. SARAGOSSA_METAL_EMULATOR_CLANG names another clang++ than clang++-19.

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

struct EmulatorThread;

namespace emulator {

enum class MathMode { safe, relaxed, fast };

struct CompileRequest {
  std::string source;
  std::map<std::string, std::string> macros = {};
  MathMode math_mode = MathMode::fast;  // fast: unqualified exp() is fast::exp()
  int language_version = 400;           // as __METAL_VERSION__: 310 to 400, which tensors need
  std::string name = "program_source";  // what messages call the file
};

/// What a kernel's parameter is.
enum class ParameterKind { buffer, threadgroup, builtin };
struct Parameter {
  std::string name;
  ParameterKind kind = ParameterKind::builtin;
  int index = 0;           // [[buffer(n)]] or [[threadgroup(n)]]
  bool writable = false;   // device, without const
  bool reference = false;  // constant T& and the like: the binding needs `size` bytes
  size_t size = 0;         // of the pointee
  size_t alignment = 1;
  bool active = true;  // false: its [[function_constant(c)]] is false, the binding may be missing
};

/// A function constant of the library.
struct FunctionConstant {
  std::string name;
  uint32_t index = 0;
  std::string type;  // as in the source: "bool", "uint"
  size_t size = 0;
  bool required = true;  // the source never asks is_function_constant_defined(name)
};
/// Values by index, as raw bytes of the constant's type.
using ConstantValues = std::map<uint32_t, std::vector<uint8_t>>;

class LoadedObject;  // a shared object with one set of function constants

/// One entry point with its function constants fixed.
class Kernel {
 public:
  std::string name;
  std::vector<Parameter> parameters;
  int max_total_threads = 1024;  // the attribute, at most Settings::max_threads_per_threadgroup
  mutable std::atomic<uint32_t> static_threadgroup_memory{0};  // known after the first run, 0 before

  /// For execute.cpp: the entry function; instrumented for check and trace. Builds it at first use.
  using Entry = void (*)(const EmulatorThread*);
  Entry entry(bool instrumented) const;

 private:
  friend class Library;
  std::shared_ptr<class Library> library_;
  ConstantValues constants_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<LoadedObject> objects_[2];
  mutable Entry entries_[2] = {nullptr, nullptr};
};

class Library : public std::enable_shared_from_this<Library> {
 public:
  struct State;
  explicit Library(std::unique_ptr<State> state);
  ~Library();
  std::vector<std::string> kernel_names() const;
  const std::vector<FunctionConstant>& function_constants() const;

  /// nullptr and a message where there is no such kernel, or a constant is missing or of the wrong size.
  std::shared_ptr<const Kernel> kernel(const std::string& name, const ConstantValues& constants, std::string& error);

 private:
  friend class Kernel;
  std::unique_ptr<State> state_;
};

struct CompileResult {
  std::shared_ptr<Library> library;  // null where the source is refused
  std::string log;
  double seconds = 0;
  bool cached = false;
};
CompileResult compile(const CompileRequest& request);

/// A text that stands for the source and all options, and outlives the process: for binary archives.
std::string content_hash(const CompileRequest& request);

}  // namespace emulator
