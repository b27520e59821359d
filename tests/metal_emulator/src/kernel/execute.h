#pragma once
// Runs dispatches. One OS thread runs a threadgroup, its GPU threads are fibres.
//
// Order between dispatches is told by groups: two dispatches of the same barrier_group are unordered (nothing was
// between them that orders), so a byte that one writes and the other touches is a hazard. A serial encoder gives every
// dispatch its own group; a concurrent one starts a new group at each memoryBarrier. Buffers that are not hazard
// tracked are judged so within an encoder alone; dispatches of different encoders are unordered for them while
// untracked_group is the same: it changes at fences, events, and where the host waited in between.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compile.h"
#include "memory.h"

namespace emulator {

constexpr int max_bindings = 31;

/// What stands at [[buffer(n)]]: `length` bytes from `address`. For setBytes `buffer` is 0 and `address` must hold
/// until the dispatch ran (put its owner into Dispatch::keep).
struct Binding {
  void* address = nullptr;
  uint64_t length = 0;
  BufferId buffer = 0;
};

struct Dispatch {
  std::shared_ptr<const Kernel> kernel;
  std::array<Binding, max_bindings> buffers{};
  std::array<uint32_t, max_bindings> threadgroup_lengths{};  // [[threadgroup(n)]]
  std::array<uint32_t, 3> grid{};                            // in threads; need not divide
  std::array<uint32_t, 3> threads_per_threadgroup{};
  uint32_t barrier_group = 0;
  uint32_t untracked_group = 0;
  uint32_t encoder = 0;            // a number for each encoder
  uint64_t sequence = 0;           // ascending over the process, in encoding order
  std::string label;               // for messages; the kernel's name where empty
  std::vector<BufferId> resident;  // useResource and residency sets: may be touched through pointers in buffers
  std::vector<std::shared_ptr<void>> keep;
};

/// Looks for what Metal's validation would refuse (missing or short bindings, limits, freed buffers); reports it and
/// returns false where the dispatch cannot run. run() calls it, the host side may do so at encoding.
bool validate(const Dispatch& dispatch);

/// Runs dispatches that nothing orders among each other, shuffled with Settings::reorder; returns when all are done.
/// Calls from several queues take turns.
void run(std::span<const Dispatch> unordered);

}  // namespace emulator
