#pragma once
// The Metal device, or the named error of a build without it (csrc/no_metal).

#include <memory>

#include "device.h"

namespace saragossa {

bool metal_available();
std::unique_ptr<Device> make_metal_device(const Switches& switches);

}  // namespace saragossa
