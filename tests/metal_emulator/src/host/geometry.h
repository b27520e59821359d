#pragma once
// Structures that metal-cpp passes by value, in Apple's layout.

#include <array>
#include <cstdint>

namespace emulator::host {

using UInteger = unsigned long;
using Integer = long;

struct Size {
  UInteger width = 0;
  UInteger height = 0;
  UInteger depth = 0;
  UInteger volume() const { return width * height * depth; }
  std::array<uint32_t, 3> to_array() const {
    return {static_cast<uint32_t>(width), static_cast<uint32_t>(height), static_cast<uint32_t>(depth)};
  }
};

struct Range {
  UInteger location = 0;
  UInteger length = 0;
};

struct OperatingSystemVersion {
  Integer major = 0;
  Integer minor = 0;
  Integer patch = 0;
};

}  // namespace emulator::host
