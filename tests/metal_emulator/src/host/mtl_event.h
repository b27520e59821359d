#pragma once
// MTLEvent, MTLSharedEvent, MTLFence: order between command buffers, with the host, and between encoders.

#include <condition_variable>
#include <memory>
#include <mutex>

#include "labelled.h"

namespace emulator::host {

class CommandThread;

/// The command buffer that signalled; empty for the host.
struct Signaller {
  std::weak_ptr<CommandThread> thread;
  uint64_t number = 0;
};

/// A value that only grows, and who waits for it.
class Event : public Labelled {
 public:
  uint64_t value();
  void signal(uint64_t value, Signaller by);
  /// The host learnt of the value: its next work is ordered behind the one that signalled it.
  void host_saw();
  void wait(uint64_t value);
  bool wait_for(uint64_t value, uint64_t milliseconds);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t value_ = 0;
  Signaller signaller_;
};

struct MTLEvent final : Instance<MTLEvent, Event> {
  static constexpr const char* kName = "MTLEvent";
};

struct MTLSharedEvent final : Instance<MTLSharedEvent, Event> {
  static constexpr const char* kName = "MTLSharedEvent";
};

struct MTLFence final : Instance<MTLFence, Labelled> {
  static constexpr const char* kName = "MTLFence";
  bool updated = false;  // touched by the queue that executes, see command_list.cpp
};

}  // namespace emulator::host
