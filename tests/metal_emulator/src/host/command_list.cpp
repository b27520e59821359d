#include "command_list.h"

#include <atomic>
#include <cstring>
#include <mutex>

#include "kernel/report.h"

namespace emulator::host {
namespace {

std::atomic<uint32_t> newest_group{1};
std::atomic<uint32_t> untracked_group{1};  // one for all queues: only an order that was asked for changes it

uint32_t new_group() { return ++newest_group; }

/// Walks a command list, keeps the groups, and hands dispatches over in runs that nothing orders.
class Executor {
 public:
  explicit Executor(const ExecutionContext& context) : context_(context) {
    if (context.after_host) untracked_group = new_group();
  }

  void operator()(BeginEncoder& encoder) {
    flush();
    encoder_ = new_group();
    group_ = new_group();
    concurrent_ = encoder.concurrent;
    first_ = true;
  }

  void operator()(DispatchCommand& command) {
    if (!concurrent_ && !first_) order_all();
    first_ = false;
    if (command.pipeline_life.expired()) {
      report("api", command.dispatch.kernel->name +
                        ": its pipeline state was released before the command buffer had completed, which keeps no "
                        "references (commandBufferWithUnretainedReferences)");
    }
    command.dispatch.barrier_group = group_;
    command.dispatch.untracked_group = untracked_group;
    command.dispatch.encoder = encoder_;
    pending_.push_back(std::move(command.dispatch));
  }

  void operator()(Barrier&) { order_all(); }

  void operator()(UpdateFence& command) {
    flush();
    command.fence->updated = true;
  }

  void operator()(WaitForFence& command) {
    flush();
    if (command.fence->updated) {
      untracked_group = new_group();
    } else {
      report("api", "waitForFence: of fence '" + command.fence->label_text() +
                        "', which no earlier encoder updated: it orders nothing");
    }
  }

  void operator()(Copy& copy) {
    flush();
    if (living(copy.source_id, "copyFromBuffer") && living(copy.destination_id, "copyFromBuffer"))
      std::memmove(copy.destination, copy.source, copy.length);
  }

  void operator()(Fill& fill) {
    flush();
    if (living(fill.destination_id, "fillBuffer")) std::memset(fill.destination, fill.value, fill.length);
  }

  void operator()(SignalEvent& command) {
    flush();
    command.event->signal(command.value, {context_.thread, context_.number});
  }

  void operator()(WaitForEvent& command) {
    flush();
    command.event->wait(command.value);
    untracked_group = new_group();
  }

  void flush() {
    if (!pending_.empty()) run(pending_);
    pending_.clear();
  }

 private:
  /// What follows in the encoder is ordered after all before it.
  void order_all() {
    flush();
    group_ = new_group();
  }

  static bool living(BufferId id, const char* what) {
    const BufferInfo info = buffer_info(id);
    if (!info.live)
      report("api", std::string(what) + ": buffer '" + info.label + "' was released before the command buffer had run");
    return info.live;
  }

  const ExecutionContext& context_;
  std::vector<Dispatch> pending_;
  uint32_t encoder_ = 0;
  uint32_t group_ = 0;
  bool concurrent_ = false;
  bool first_ = true;  // no dispatch of this encoder yet
};

}  // namespace

void execute(CommandList& commands, const ExecutionContext& context) {
  Executor executor(context);
  for (Command& command : commands) std::visit(executor, command);
  executor.flush();
}

uint64_t next_sequence() {
  static std::atomic<uint64_t> sequence{0};
  return ++sequence;
}

}  // namespace emulator::host
