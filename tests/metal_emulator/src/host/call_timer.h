#pragma once
// How long the emulator's own methods take, so that a program's encoding can be told from it.

#include <x86intrin.h>

#include <cstdint>

namespace emulator::host {

/// Ticks that this thread has spent inside methods. The message's way there counts as the program's.
uint64_t& ticks_in_methods();
double nanoseconds_of_ticks(uint64_t ticks);

/// Around a method's body. A body that was interrupted for long is left out: it would hide the program's own time.
class InMethod {
 public:
  InMethod() : start_(__rdtsc()) {}
  ~InMethod() {
    const uint64_t ticks = __rdtsc() - start_;
    if (ticks < kInterrupted) ticks_in_methods() += ticks;
  }

 private:
  static constexpr uint64_t kInterrupted = 100'000;
  uint64_t start_;
};

}  // namespace emulator::host
