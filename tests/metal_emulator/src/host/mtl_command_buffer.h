#pragma once
// MTLCommandBuffer: from its encoders to its completion.

#include <condition_variable>
#include <mutex>
#include <thread>

#include "block.h"
#include "command_list.h"
#include "mtl_command_queue.h"

namespace emulator::host {

enum class CommandBufferStatus : UInteger {
  not_enqueued = 0,
  enqueued = 1,
  committed = 2,
  scheduled = 3,
  completed = 4,
  error = 5,
};

/// CPU time of the calling thread.
uint64_t thread_cpu_ns();

struct MTLCommandBufferDescriptor final : Instance<MTLCommandBufferDescriptor> {
  static constexpr const char* kName = "MTLCommandBufferDescriptor";
  bool retained_references = true;
  UInteger error_options = 0;
};

struct MTLCommandBuffer final : Instance<MTLCommandBuffer, Labelled> {
  static constexpr const char* kName = "MTLCommandBuffer";
  using Handler = Block<MTLCommandBuffer*>;

  MTLCommandBuffer(MTLCommandQueue* command_queue, bool retained)
      : queue(command_queue), retained_references(retained) {}
  ~MTLCommandBuffer() override;

  /// Keeps what a command uses, unless the buffer was made without references.
  void keep(Object* object) {
    if (retained_references && object) kept.emplace_back(object);
  }
  std::string name() const { return "MTLCommandBuffer '" + label_text() + "'"; }
  CommandBufferStatus status();
  bool editable(const char* selector);

  void commit();
  void wait(CommandBufferStatus for_status);
  void add_completed_handler(const void* block);
  void add_scheduled_handler(const void* block);

  /// On the queue's thread.
  void run();

  const Ref<MTLCommandQueue> queue;
  const bool retained_references;
  CommandList commands;
  std::vector<Ref<Object>> kept;
  ResidencySets residency;
  bool encoder_open = false;

  // Set by CommandThread::commit.
  uint64_t number = 0;
  bool after_host = false;

  double start_time = 0, end_time = 0;
  Ref<NSError> error;

 private:
  void advance(CommandBufferStatus status);

  const uint64_t created_ns_ = thread_cpu_ns();
  const uint64_t created_ticks_ = ticks_in_methods();

  std::vector<Handler> scheduled_handlers_, completed_handlers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  CommandBufferStatus status_ = CommandBufferStatus::not_enqueued;
  bool done_ = false;  // the completed handlers have returned
  bool told_ = false;  // somebody was told of the end
  std::thread::id handler_thread_;
};

}  // namespace emulator::host
