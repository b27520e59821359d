#pragma once
// What a command buffer holds, and its execution in order on the queue's thread.
//
// Order is what the kernel side's checker judges by. Inside a serial encoder every dispatch is ordered; inside a
// concurrent one only memoryBarrier orders. Between encoders and command buffers of a queue Metal orders what
// touches hazard-tracked resources; untracked ones need a fence, an event, or a host that waited in between.
// execute() turns that into the encoder and group numbers of Dispatch (kernel/execute.h).

#include <deque>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "command_thread.h"
#include "kernel/execute.h"
#include "mtl_event.h"

namespace emulator::host {

struct BeginEncoder {
  bool concurrent = false;
};
struct DispatchCommand {
  Dispatch dispatch;
  std::weak_ptr<int> pipeline_life;
};
/// memoryBarrier
struct Barrier {};
struct UpdateFence {
  Ref<MTLFence> fence;
};
struct WaitForFence {
  Ref<MTLFence> fence;
};
struct Copy {
  BufferId source_id = 0, destination_id = 0;
  const uint8_t* source = nullptr;
  uint8_t* destination = nullptr;
  size_t length = 0;
};
struct Fill {
  BufferId destination_id = 0;
  uint8_t* destination = nullptr;
  size_t length = 0;
  uint8_t value = 0;
};
struct SignalEvent {
  Ref<Event> event;
  uint64_t value = 0;
};
struct WaitForEvent {
  Ref<Event> event;
  uint64_t value = 0;
};
using Command = std::variant<BeginEncoder, DispatchCommand, Barrier, UpdateFence, WaitForFence, Copy, Fill, SignalEvent,
                             WaitForEvent>;
using CommandList = std::deque<Command>;  // a dispatch is a kilobyte: nothing is to be moved

/// Which command buffer runs.
struct ExecutionContext {
  std::shared_ptr<CommandThread> thread;
  uint64_t number = 0;      // its place among the commits
  bool after_host = false;  // the host saw all earlier work completed before it committed this
};

/// Runs the commands in order.
void execute(CommandList& commands, const ExecutionContext& context);

/// The next Dispatch::sequence.
uint64_t next_sequence();

}  // namespace emulator::host
