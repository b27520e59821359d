#include "command_thread.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "kernel/counters.h"
#include "kernel/report.h"
#include "kernel/settings.h"
#include "mtl_command_buffer.h"

namespace emulator::host {
namespace {

struct ThreadList {
  std::mutex mutex;
  std::vector<std::weak_ptr<CommandThread>> threads;
};
ThreadList& thread_list() {
  static auto& list = *new ThreadList;
  return list;
}

}  // namespace

CommandThread::CommandThread(uint64_t max_unfinished) : max_unfinished_(max_unfinished) {}

CommandThread::~CommandThread() = default;

std::shared_ptr<CommandThread> CommandThread::start(uint64_t max_unfinished) {
  std::shared_ptr<CommandThread> self(new CommandThread(max_unfinished));
  {
    std::lock_guard lock(thread_list().mutex);
    std::erase_if(thread_list().threads, [](const auto& thread) { return thread.expired(); });
    thread_list().threads.push_back(self);
  }
  std::thread([self] { self->run(); }).detach();
  return self;
}

void CommandThread::end() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
}

void CommandThread::admit(const std::string& queue_name) {
  std::unique_lock lock(mutex_);
  if (unfinished_ >= max_unfinished_ && running_ > 0) {
    ++calls().host_waits;
    awake_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return unfinished_ < max_unfinished_ || running_ == 0; });
  }
  if (unfinished_ >= max_unfinished_) {
    report("api", queue_name + ": " + std::to_string(unfinished_) +
                      " command buffers wait for their commit, its maximum; the next one blocks for ever on a Mac");
  }
  ++unfinished_;
}

void CommandThread::leave() {
  {
    std::lock_guard lock(mutex_);
    --unfinished_;
  }
  changed_.notify_all();
}

void CommandThread::commit(MTLCommandBuffer* buffer) {
  {
    std::lock_guard lock(mutex_);
    buffer->after_host = seen_ == commits_;
    buffer->number = ++commits_;
    ++running_;
    committed_.emplace_back(buffer);
  }
  ++calls().command_buffers;
  changed_.notify_all();
}

void CommandThread::wake() {
  {
    std::lock_guard lock(mutex_);
    awake_ = true;
  }
  changed_.notify_all();
}

void CommandThread::host_saw(uint64_t number) {
  std::lock_guard lock(mutex_);
  seen_ = std::max(seen_, number);
}

/// The next command buffer, or none at the end.
Ref<MTLCommandBuffer> CommandThread::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ending_ || !committed_.empty(); });
  if (committed_.empty()) return {};
  if (const int patience = settings().lazy_ms; patience > 0)
    changed_.wait_for(lock, std::chrono::milliseconds(patience), [&] { return awake_ || ending_; });
  Ref<MTLCommandBuffer> buffer = std::move(committed_.front());
  committed_.pop_front();
  if (committed_.empty()) awake_ = false;
  return buffer;
}

void CommandThread::run() {
  while (Ref<MTLCommandBuffer> buffer = next()) {
    buffer->run();
    {
      std::lock_guard lock(mutex_);
      --running_;
      --unfinished_;
    }
    changed_.notify_all();
  }
}

void wake_all_command_threads() {
  std::vector<std::shared_ptr<CommandThread>> threads;
  {
    std::lock_guard lock(thread_list().mutex);
    for (const auto& thread : thread_list().threads) threads.push_back(thread.lock());
  }
  for (const auto& thread : threads) {
    if (thread) thread->wake();
  }
}

}  // namespace emulator::host
