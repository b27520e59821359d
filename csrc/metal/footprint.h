#pragma once
// Memory of this process as macOS counts it.

#include <cstdint>

namespace saragossa::metal {

/// phys_footprint: what the system holds against the process, GPU memory included; 0 where it does not say.
int64_t phys_footprint();

}  // namespace saragossa::metal
