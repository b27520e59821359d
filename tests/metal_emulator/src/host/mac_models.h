#pragma once
// The Macs that can be played: SARAGOSSA_METAL_EMULATOR_DEVICE names one ("Apple M3 Max"); otherwise the first of the
// setting gpu_family is taken.

#include <span>
#include <string>

namespace emulator::host {

struct MacModel {
  const char* name;          // MTLDevice.name
  int gpu_family;            // MTLGPUFamilyApple<n>
  const char* architecture;  // MTLArchitecture.name, as public logs show it
};

std::span<const MacModel> mac_models();

/// The one that the settings name.
const MacModel& mac_model();

}  // namespace emulator::host
