#include "metal/metal_device.h"

namespace saragossa {

bool metal_available() { return false; }

namespace {

[[noreturn]] void refuse() {
  fail(ErrorKind::usage, "device 'metal' is not available: this build of saragossa has no Metal; use --device cpu");
}

}  // namespace

std::vector<CompiledKernels> compile_metal_kernels() { refuse(); }

std::unique_ptr<Device> make_metal_device(const Switches&) { refuse(); }

}  // namespace saragossa
