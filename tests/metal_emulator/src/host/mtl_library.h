#pragma once
// From MSL source to a function: MTLCompileOptions, MTLLibrary, MTLFunctionConstantValues, MTLFunction.

#include "kernel/compile.h"
#include "labelled.h"

namespace emulator::host {

struct MTLCompileOptions final : Instance<MTLCompileOptions> {
  static constexpr const char* kName = "MTLCompileOptions";
  MathMode math_mode = MathMode::fast;
  UInteger language_version = 0;  // (major << 16) + minor; 0: the newest of the system
  Ref<NSDictionary> macros;
};

struct MTLLibrary final : Instance<MTLLibrary, Labelled> {
  static constexpr const char* kName = "MTLLibrary";
  std::shared_ptr<Library> library;
  std::string hash;  // of source and options, for binary archives
};

struct MTLFunctionConstantValues final : Instance<MTLFunctionConstantValues> {
  static constexpr const char* kName = "MTLFunctionConstantValues";
  ConstantValues by_index;
  std::map<std::string, std::vector<uint8_t>> by_name;
};

struct MTLFunction final : Instance<MTLFunction, Labelled> {
  static constexpr const char* kName = "MTLFunction";
  std::shared_ptr<const Kernel> kernel;
  std::string identity;  // library, name and constants: the key in a binary archive
};

/// -[MTLDevice newLibraryWithSource:options:error:]. A library with warnings comes with an error object, too.
MTLLibrary* new_library(NSString* source, MTLCompileOptions* options, NSError** error);

}  // namespace emulator::host
