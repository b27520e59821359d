#pragma once
// The thread behind a command queue: runs committed command buffers in order. It outlives the queue object, since the
// queue's last reference may go with a command buffer, on this very thread.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "object.h"

namespace emulator::host {

struct MTLCommandBuffer;

class CommandThread : public std::enable_shared_from_this<CommandThread> {
 public:
  /// Starts the thread. `max_unfinished`: MTLCommandQueue's maxCommandBufferCount.
  static std::shared_ptr<CommandThread> start(uint64_t max_unfinished);
  ~CommandThread();
  /// Lets the thread end when its work is done.
  void end();

  /// Counts a new command buffer; waits where the maximum of unfinished ones is reached.
  void admit(const std::string& queue_name);
  /// A command buffer that was dropped without a commit.
  void leave();

  /// Hands over; sets the buffer's number and whether the host saw all before it completed.
  void commit(MTLCommandBuffer* buffer);

  /// Somebody waits: with Settings::lazy_ms, committed work starts now.
  void wake();

  /// The host learnt that the command buffer of this number has completed.
  void host_saw(uint64_t number);

 private:
  explicit CommandThread(uint64_t max_unfinished);
  void run();
  Ref<MTLCommandBuffer> next();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Ref<MTLCommandBuffer>> committed_;
  bool awake_ = false;
  bool ending_ = false;
  const uint64_t max_unfinished_;
  uint64_t unfinished_ = 0;  // admitted and not done
  uint64_t running_ = 0;     // of them, committed
  uint64_t commits_ = 0;     // the number of the newest
  uint64_t seen_ = 0;        // the newest that the host saw completed
};

/// wake() of every thread: the host waits for an event that any of them may signal.
void wake_all_command_threads();

}  // namespace emulator::host
