#include "call_timer.h"

#include <chrono>

namespace emulator::host {
namespace {

using Clock = std::chrono::steady_clock;

struct Start {
  uint64_t ticks = __rdtsc();
  Clock::time_point time = Clock::now();
};
const Start start;

}  // namespace

uint64_t& ticks_in_methods() {
  static thread_local uint64_t ticks = 0;
  return ticks;
}

double nanoseconds_of_ticks(uint64_t ticks) {
  const auto passed = std::chrono::duration<double, std::nano>(Clock::now() - start.time).count();
  return static_cast<double>(ticks) * passed / static_cast<double>(__rdtsc() - start.ticks);
}

}  // namespace emulator::host
