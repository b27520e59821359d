#include "metal/metal_device.h"

namespace saragossa {

bool metal_available() { return false; }

std::unique_ptr<Device> make_metal_device(const Switches&) {
  fail(ErrorKind::usage, "device 'metal' is not available: this build of saragossa has no Metal; use --device cpu");
}

}  // namespace saragossa
