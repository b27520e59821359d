#pragma once
// MTLCommandQueue: makes command buffers, and runs them in the order of their commits.

#include "command_thread.h"
#include "mtl_residency_set.h"

namespace emulator::host {

constexpr UInteger kMaxCommandBuffers = 64;  // uncompleted ones of a queue, unless told otherwise

struct MTLCommandQueueDescriptor final : Instance<MTLCommandQueueDescriptor> {
  static constexpr const char* kName = "MTLCommandQueueDescriptor";
  UInteger max_command_buffers = kMaxCommandBuffers;
};

struct MTLCommandQueue final : Instance<MTLCommandQueue, Labelled> {
  static constexpr const char* kName = "MTLCommandQueue";

  explicit MTLCommandQueue(UInteger max_command_buffers) : thread(CommandThread::start(max_command_buffers)) {}
  ~MTLCommandQueue() override { thread->end(); }

  const std::shared_ptr<CommandThread> thread;
  ResidencySets residency;
};

}  // namespace emulator::host
