#include "fibre.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#if !defined(__x86_64__)
#error "the emulator's fibres know x86-64 only; add emulator_switch_stack for this machine"
#endif

// Callee-saved registers go to the old stack and come from the new one.
__asm__(R"(
.text
.globl emulator_switch_stack
.type emulator_switch_stack, @function
emulator_switch_stack:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size emulator_switch_stack, .-emulator_switch_stack
)");

namespace emulator {

StackArena::StackArena() {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    fprintf(stderr, "metal emulator: no address space for %zu bytes of stacks\n", bytes);
    abort();
  }
  base_ = static_cast<char*>(p);
}

StackArena::~StackArena() { munmap(base_, bytes); }

char* StackArena::take() {
  char* slot = base_ + used_++ * (stack_bytes + guard_bytes);
  mprotect(slot, guard_bytes, PROT_NONE);  // an overflow ends the process rather than a neighbour
  return slot + guard_bytes;
}

void Fibre::prepare(void (*main)()) {
  // Different offsets, so that the same variable of different threads falls into different cache sets.
  const size_t colour = number * 704 % (48 * 1024);
  auto top = reinterpret_cast<uintptr_t>(stack + StackArena::stack_bytes - 64 - colour) & ~uintptr_t{63};
  auto** sp = reinterpret_cast<void**>(top);
  *--sp = nullptr;                        // where main would return to; also aligns as after a call
  *--sp = reinterpret_cast<void*>(main);  // taken by ret
  for (int i = 0; i < 6; i++) *--sp = nullptr;
  stack_pointer = sp;
}

}  // namespace emulator
