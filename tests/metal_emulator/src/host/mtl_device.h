#pragma once
// The one GPU.

#include "foundation.h"

namespace emulator::host {

struct MTLDevice final : Instance<MTLDevice> {
  static constexpr const char* kName = "MTLDevice";
};

/// Never released by us; the program's references are its own.
MTLDevice* system_device();

/// MTLDevice.maxBufferLength: what newBuffer accepts.
UInteger max_buffer_length();

/// `-device`, which nearly every Metal object answers.
struct HasDevice : Object {
  MTLDevice* device() const { return system_device(); }
};

}  // namespace emulator::host
