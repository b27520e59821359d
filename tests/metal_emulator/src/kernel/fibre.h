#pragma once
// Fibres: a stack each, switched by hand. A GPU thread runs on one from its start to its end.

#include <cstddef>
#include <cstdint>

namespace emulator {

/// All stacks of one worker lie in one range, so that "some thread's stack" is one comparison.
class StackArena {
 public:
  StackArena();
  ~StackArena();
  StackArena(const StackArena&) = delete;
  StackArena& operator=(const StackArena&) = delete;

  /// The next stack's lowest usable address; there are `count` of them.
  char* take();
  bool contains(uintptr_t address) const { return address - reinterpret_cast<uintptr_t>(base_) < bytes; }

  static constexpr size_t stack_bytes = 256 * 1024, guard_bytes = 4096, count = 1024;

 private:
  static constexpr size_t bytes = count * (stack_bytes + guard_bytes);
  char* base_;
  size_t used_ = 0;
};

struct Fibre {
  void* stack_pointer = nullptr;
  char* stack = nullptr;
  size_t number = 0;

  /// The next switch to this fibre calls `main`, which must not return.
  void prepare(void (*main)());
};

/// Saves the running context's stack pointer to *save and goes on at `load`.
extern "C" void emulator_switch_stack(void** save, void* load);

}  // namespace emulator
