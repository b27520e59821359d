#include "compile.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "cache.h"
#include "msl/emulator/abi.h"
#include "rewriter/rewriter.h"
#include "settings.h"
#include "shared_object.h"
#include "toolchain.h"

namespace emulator {

struct Library::State {
  CompileRequest request;
  std::string program;  // rewritten
  std::shared_ptr<LoadedObject> reflection;
  std::vector<FunctionConstant> constants;

  std::mutex mutex;
  std::map<std::pair<bool, ConstantValues>, std::weak_ptr<LoadedObject>> loaded;  // kernels hold them

  /// One copy of the library with these constants.
  std::shared_ptr<LoadedObject> load(bool instrumented, const ConstantValues& values, std::string& error);
};

namespace {

/// A failure after the source was accepted once: the toolchain is broken.
void give_up(const std::string& message) {
  fprintf(stderr, "metal emulator: %s\n", message.c_str());
  abort();
}

std::string lint_log(const CompileRequest& request, const std::vector<rewriter::Lint>& lints, bool& refused) {
  std::string log;
  for (const rewriter::Lint& lint : lints) {
    log += request.name + ":" + std::to_string(lint.line) + ": " + (lint.error ? "error: " : "warning: ") +
           lint.message + "\n";
    refused |= lint.error;
  }
  return log;
}

std::vector<FunctionConstant> constants_of(const EmulatorLibrary& library) {
  std::vector<FunctionConstant> result;
  for (int i = 0; i < library.constant_count; i++) {
    const EmulatorConstant& c = library.constants[i];
    result.push_back({c.name, c.index, c.type, c.size, !c.asked});
  }
  return result;
}

ParameterKind kind_of(const EmulatorParameter& p) {
  if (p.kind == kind_buffer) return ParameterKind::buffer;
  return p.kind == kind_threadgroup_buffer ? ParameterKind::threadgroup : ParameterKind::builtin;
}

std::vector<Parameter> parameters_of(const EmulatorKernel& kernel) {
  std::vector<Parameter> result;
  for (int i = 0; i < kernel.parameter_count; i++) {
    const EmulatorParameter& p = kernel.parameters[i];
    result.push_back(
        {p.name, kind_of(p), p.index, !p.is_const, p.is_reference != 0, p.size, p.alignment, p.active != 0});
  }
  return result;
}

bool uses(const EmulatorKernel& kernel, const std::string& constant) {
  return (" " + std::string(kernel.constants)).find(" " + constant + " ") != std::string::npos;
}

/// What Metal says to missing or misfitting function constants.
std::string constant_error(const EmulatorKernel& kernel, const std::vector<FunctionConstant>& constants,
                           const ConstantValues& values) {
  for (const FunctionConstant& c : constants) {
    const auto value = values.find(c.index);
    const std::string what = "function constant " + c.name + " (index " + std::to_string(c.index) + ", " + c.type + ")";
    if (value != values.end() && value->second.size() != c.size)
      return what + " got a value of " + std::to_string(value->second.size()) + " bytes, expected " +
             std::to_string(c.size);
    if (value == values.end() && c.required && uses(kernel, c.name))
      return std::string("kernel ") + kernel.name + " uses " + what +
             ", which has no value: give it one, or ask is_function_constant_defined";
  }
  return "";
}

}  // namespace

std::shared_ptr<LoadedObject> Library::State::load(bool instrumented, const ConstantValues& values,
                                                   std::string& error) {
  std::lock_guard lock(mutex);
  std::weak_ptr<LoadedObject>& known = loaded[{instrumented, values}];
  if (std::shared_ptr<LoadedObject> object = known.lock()) return object;
  bool cached = false;
  const std::string path = build(program, request, instrumented, error, cached).string();
  if (path.empty()) return nullptr;
  std::shared_ptr<LoadedObject> object = LoadedObject::load(path, values, error);
  known = object;
  return object;
}

Library::Library(std::unique_ptr<State> state) : state_(std::move(state)) {}
Library::~Library() = default;

std::vector<std::string> Library::kernel_names() const {
  const EmulatorLibrary& library = state_->reflection->library();
  std::vector<std::string> names;
  for (int i = 0; i < library.kernel_count; i++) names.push_back(library.kernels[i].name);
  return names;
}

const std::vector<FunctionConstant>& Library::function_constants() const { return state_->constants; }

std::shared_ptr<const Kernel> Library::kernel(const std::string& name, const ConstantValues& constants,
                                              std::string& error) {
  const EmulatorKernel* plain = state_->reflection->find(name);
  if (!plain) {
    error = "the library has no kernel '" + name + "'";
    return nullptr;
  }
  // Values that the library does not know are no part of its variants.
  ConstantValues known;
  for (const FunctionConstant& c : state_->constants)
    if (constants.count(c.index)) known[c.index] = constants.at(c.index);
  error = constant_error(*plain, state_->constants, known);
  if (!error.empty()) return nullptr;
  const bool instrumented = settings().instrumented();
  std::shared_ptr<LoadedObject> object = state_->load(instrumented, known, error);
  if (!object) return nullptr;
  const EmulatorKernel* found = object->find(name);
  auto kernel = std::make_shared<Kernel>();
  kernel->name = name;
  kernel->parameters = parameters_of(*found);
  const int limit = std::min(settings().max_threads_per_threadgroup, 1024);
  kernel->max_total_threads = found->max_total_threads ? std::min(found->max_total_threads, limit) : limit;
  kernel->library_ = shared_from_this();
  kernel->constants_ = known;
  kernel->objects_[instrumented] = object;
  return kernel;
}

Kernel::Entry Kernel::entry(bool instrumented) const {
  std::lock_guard lock(mutex_);
  Entry& entry = entries_[instrumented];
  if (!entry) {
    std::string error;
    objects_[instrumented] = library_->state_->load(instrumented, constants_, error);
    if (!objects_[instrumented]) give_up("kernel " + name + " cannot be built: " + error);
    entry = objects_[instrumented]->find(name)->entry;
  }
  return entry;
}

CompileResult compile(const CompileRequest& request) {
  const auto start = std::chrono::steady_clock::now();
  CompileResult result;
  auto state = std::make_unique<Library::State>();
  state->request = request;
  std::string preprocessed;
  if (!preprocess(request, preprocessed, result.log)) return result;
  rewriter::Rewritten rewritten = rewriter::rewrite(preprocessed, request.language_version);
  bool refused = false;
  result.log += lint_log(request, rewritten.lints, refused);
  if (refused) return result;
  state->program = std::move(rewritten.text);
  const bool instrumented = settings().instrumented();
  const std::string path = build(state->program, request, instrumented, result.log, result.cached).string();
  if (path.empty()) return result;
  state->reflection = LoadedObject::load(path, {}, result.log);
  if (!state->reflection) return result;
  state->loaded[{instrumented, {}}] = state->reflection;
  state->constants = constants_of(state->reflection->library());
  result.library = std::make_shared<Library>(std::move(state));
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

std::string content_hash(const CompileRequest& request) {
  std::string all = build_options(request, false) + '\n';
  for (const auto& [name, value] : request.macros) all += name + '=' + value + '\n';
  return hash_text(all + request.source);
}

}  // namespace emulator
