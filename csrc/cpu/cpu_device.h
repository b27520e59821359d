#pragma once

#include <memory>

#include "device.h"

namespace saragossa::cpu {

std::unique_ptr<Device> make_cpu_device(const Switches& switches);

}  // namespace saragossa::cpu
