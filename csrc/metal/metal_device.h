#pragma once
// The Metal device, or the named error of a build without it (csrc/no_metal).

#include <memory>
#include <string>
#include <vector>

#include "device.h"

namespace saragossa {

/// A GPU with a system that the device takes.
bool metal_available();

/// A family of kernels, compiled anew: its functions, or the compiler's words.
struct CompiledKernels {
  std::string family;
  double seconds = 0.0;
  int functions = 0;
  std::string error;
};
/// All families, one after another, past every cache of ours. Error(usage) without a Metal GPU.
std::vector<CompiledKernels> compile_metal_kernels();

std::unique_ptr<Device> make_metal_device(const Switches& switches);

}  // namespace saragossa
