#pragma once
// What a program learns about the emulated Mac outside of Metal.

#include <cstdint>
#include <string>

namespace emulator::host {

/// Bytes of memory: those of this machine.
uint64_t physical_memory();

/// kern.osversion; another for each OS_VERSION.
std::string system_build();

}  // namespace emulator::host
