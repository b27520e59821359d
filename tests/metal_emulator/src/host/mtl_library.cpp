#include "mtl_library.h"

#include <algorithm>

#include "classes.h"
#include "kernel/counters.h"
#include "kernel/report.h"
#include "kernel/settings.h"
#include "mac_models.h"
#include "mtl_device.h"

namespace emulator::host {
namespace {

constexpr const char* kErrorDomain = "MTLLibraryErrorDomain";
enum LibraryError : Integer { kCompileFailure = 3, kCompileWarning = 4, kFunctionNotFound = 5 };

/// The newest MSL that the emulated system compiles, as __METAL_VERSION__.
int newest_language() {
  const int os = settings().os_major;
  return os >= 26 ? 400 : os >= 15 ? 320 : os == 14 ? 310 : os == 13 ? 300 : os == 12 ? 240 : 230;
}

std::string language_text(int version) {
  return std::to_string(version / 100) + "." + std::to_string(version / 10 % 10);
}

/// The size of one value of an MTLDataType; 0 for one that is not modelled.
size_t data_type_size(UInteger type) {
  struct Row {
    UInteger first;
    size_t size;
  };
  // Each scalar is followed by its vectors of two, three and four.
  static constexpr Row kRows[] = {{3, 4},  {16, 2}, {29, 4}, {33, 4}, {37, 2}, {41, 2},
                                  {45, 1}, {49, 1}, {53, 1}, {81, 8}, {85, 8}, {121, 2}};
  for (const Row& row : kRows) {
    if (type >= row.first && type < row.first + 4) {
      const UInteger lanes = type - row.first + 1;
      return row.size * (lanes == 3 ? 4 : lanes);
    }
  }
  return 0;
}

std::vector<uint8_t> constant_bytes(const void* value, UInteger type) {
  const size_t size = data_type_size(type);
  if (size == 0) report("api", "MTLFunctionConstantValues: MTLDataType " + std::to_string(type) + " is not modelled");
  const auto* bytes = static_cast<const uint8_t*>(value);
  return {bytes, bytes + size};
}

struct CompileOptionsMethods : MethodsOf<MTLCompileOptions> {
  void set_fast_math(bool on) { self()->math_mode = on ? MathMode::fast : MathMode::safe; }
  bool fast_math() const { return self()->math_mode == MathMode::fast; }
  void set_math_mode(Integer mode) { self()->math_mode = static_cast<MathMode>(mode); }
  Integer math_mode() const { return static_cast<Integer>(self()->math_mode); }
  void set_language_version(UInteger version) { self()->language_version = version; }
  UInteger language_version() const { return self()->language_version; }
  void set_macros(NSDictionary* macros) { self()->macros = Ref(macros); }
  NSDictionary* macros() const { return self()->macros.get(); }
  // What changes nothing of a kernel's results here.
  void ignore_integer(Integer) {}
  void ignore_flag(bool) {}
};

struct ConstantValuesMethods : MethodsOf<MTLFunctionConstantValues> {
  void set_at(const void* value, UInteger type, UInteger index) {
    self()->by_index[static_cast<uint32_t>(index)] = constant_bytes(value, type);
  }
  void set_named(const void* value, UInteger type, NSString* name) {
    self()->by_name[name->text] = constant_bytes(value, type);
  }
  void set_range(const void* values, UInteger type, Range range) {
    const auto* bytes = static_cast<const uint8_t*>(values);
    for (UInteger i = 0; i < range.length; ++i) set_at(bytes + i * data_type_size(type), type, range.location + i);
  }
  void reset() {
    self()->by_index.clear();
    self()->by_name.clear();
  }
};

ConstantValues resolve(const Library& library, const MTLFunctionConstantValues* values) {
  if (!values) return {};
  ConstantValues resolved = values->by_index;
  for (const auto& [name, bytes] : values->by_name) {
    for (const FunctionConstant& constant : library.function_constants()) {
      if (constant.name == name) resolved[constant.index] = bytes;
    }
  }
  return resolved;
}

std::string identity(const MTLLibrary& library, const std::string& name, const ConstantValues& constants) {
  std::string text = library.hash + " " + name;
  for (const auto& [index, bytes] : constants) {
    text += " " + std::to_string(index) + "=";
    for (uint8_t byte : bytes) text += "0123456789abcdef"[byte >> 4], text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

struct LibraryMethods : MethodsOf<MTLLibrary> {
  MTLFunction* make(NSString* name, MTLFunctionConstantValues* values, NSError** error) {
    Library& library = *self()->library;
    const std::vector<std::string> names = library.kernel_names();
    if (!name || std::find(names.begin(), names.end(), name->text) == names.end()) {
      set_error(error, kErrorDomain, kFunctionNotFound,
                "no function named '" + (name ? name->text : "(nil)") + "' in the library");
      return nullptr;
    }
    const ConstantValues constants = resolve(library, values);
    std::string message;
    std::shared_ptr<const Kernel> kernel = library.kernel(name->text, constants, message);
    if (!kernel) {
      set_error(error, kErrorDomain, kCompileFailure, message);
      return nullptr;
    }
    auto* function = new MTLFunction;
    function->kernel = std::move(kernel);
    function->identity = identity(*self(), name->text, constants);
    return function;
  }
  MTLFunction* new_function(NSString* name) { return make(name, nullptr, nullptr); }
  NSArray* function_names() {
    auto* names = autoreleased(new NSArray);
    for (const std::string& name : self()->library->kernel_names())
      names->objects.push_back(Ref<Object>::adopt(new NSString(name)));
    return names;
  }
};

struct FunctionMethods : MethodsOf<MTLFunction> {
  NSString* name() { return make_string(self()->kernel->name); }
  UInteger function_type() { return 3; }  // MTLFunctionTypeKernel
};

}  // namespace

/// By the setting of that name.
std::string miscompiled(std::string source) {
  const std::string& fault = settings().miscompile;
  const size_t arrow = fault.find("=>");
  if (arrow == std::string::npos) return source;
  const size_t at = source.find(fault.substr(0, arrow));
  if (at != std::string::npos) source.replace(at, arrow, fault.substr(arrow + 2));
  return source;
}

MTLLibrary* new_library(NSString* source, MTLCompileOptions* options, NSError** error) {
  const std::string& fail_of = settings().fail_compile_of;
  if (fails_now(settings().fail_compile) || (!fail_of.empty() && source->text.find(fail_of) != std::string::npos)) {
    set_error(error, kErrorDomain, kCompileFailure,
              "program_source: error: failed on request of the emulator's settings");
    return nullptr;
  }
  CompileRequest request{.source = miscompiled(source->text), .language_version = newest_language()};
  if (options) {
    request.math_mode = options->math_mode;
    if (options->macros) request.macros = options->macros->to_text();
    const UInteger version = options->language_version;
    if (version) request.language_version = static_cast<int>((version >> 16) * 100 + (version & 0xffff) * 10);
  }
  if (request.language_version > newest_language()) {
    set_error(error, kErrorDomain, kCompileFailure,
              "language version " + language_text(request.language_version) + " is not supported on macOS " +
                  std::to_string(settings().os_major) + "." + std::to_string(settings().os_minor) + ", which has " +
                  language_text(newest_language()));
    return nullptr;
  }
  const auto language = static_cast<uint64_t>(request.language_version);
  if (language > calls().newest_language) calls().newest_language = language;
  // By text: what a library does not use, it may not include here either.
  if (mac_model().gpu_family < 7 && source->text.find("<metal_simdgroup_matrix>") != std::string::npos) {
    set_error(error, kErrorDomain, kCompileFailure,
              std::string("simdgroup matrices need family 7, ") + mac_model().name + " is of family " +
                  std::to_string(mac_model().gpu_family));
    return nullptr;
  }
  CompileResult result = compile(request);
  if (!result.library || !result.log.empty())
    set_error(error, kErrorDomain, result.library ? kCompileWarning : kCompileFailure, result.log);
  if (!result.library) return nullptr;
  auto* library = new MTLLibrary;
  library->library = std::move(result.library);
  library->hash = content_hash(request);
  return library;
}

void install_library() {
  define<MTLCompileOptions>()
      .class_method<&MTLCompileOptions::alloc>("alloc")
      .method<&CompileOptionsMethods::set_fast_math>("setFastMathEnabled:")
      .method<&CompileOptionsMethods::fast_math>("fastMathEnabled")
      .method<&CompileOptionsMethods::set_math_mode>("setMathMode:", {15, 0})
      .method<&CompileOptionsMethods::math_mode>("mathMode", {15, 0})
      .method<&CompileOptionsMethods::ignore_integer>("setMathFloatingPointFunctions:", {15, 0})
      .method<&CompileOptionsMethods::set_language_version>("setLanguageVersion:")
      .method<&CompileOptionsMethods::language_version>("languageVersion")
      .method<&CompileOptionsMethods::set_macros>("setPreprocessorMacros:")
      .method<&CompileOptionsMethods::macros>("preprocessorMacros")
      .method<&CompileOptionsMethods::ignore_flag>("setPreserveInvariance:")
      .method<&CompileOptionsMethods::ignore_integer>("setOptimizationLevel:");
  define<MTLLibrary>()
      .method<&MTLLibrary::label>("label")
      .method<&MTLLibrary::setLabel>("setLabel:")
      .method<&HasDevice::device>("device")
      .method<&LibraryMethods::function_names>("functionNames")
      .method<&LibraryMethods::new_function>("newFunctionWithName:")
      .method<&LibraryMethods::make>("newFunctionWithName:constantValues:error:");
  define<MTLFunctionConstantValues>()
      .class_method<&MTLFunctionConstantValues::alloc>("alloc")
      .method<&ConstantValuesMethods::set_at>("setConstantValue:type:atIndex:")
      .method<&ConstantValuesMethods::set_named>("setConstantValue:type:withName:")
      .method<&ConstantValuesMethods::set_range>("setConstantValues:type:withRange:")
      .method<&ConstantValuesMethods::reset>("reset");
  define<MTLFunction>()
      .method<&MTLFunction::label>("label")
      .method<&MTLFunction::setLabel>("setLabel:")
      .method<&HasDevice::device>("device")
      .method<&FunctionMethods::name>("name")
      .method<&FunctionMethods::function_type>("functionType");
}

}  // namespace emulator::host
