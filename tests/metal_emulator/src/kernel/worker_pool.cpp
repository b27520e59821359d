#include "worker_pool.h"

#include <algorithm>

#include "settings.h"

namespace emulator {

WorkerPool& WorkerPool::instance() {
  static WorkerPool pool;
  return pool;
}

void WorkerPool::run(const std::function<void()>& job) {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  const size_t others = static_cast<size_t>(settings().workers > 0 ? settings().workers : static_cast<int>(cores)) - 1;
  {
    std::lock_guard lock(mutex_);
    while (threads_.size() < others) threads_.emplace_back([this, n = threads_.size()] { loop(n); });
    job_ = &job;
    wanted_ = running_ = others;
    round_++;
  }
  wake_.notify_all();
  job();
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return running_ == 0; });
}

void WorkerPool::loop(size_t number) {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || (round_ != seen && number < wanted_); });
    if (stop_) return;
    seen = round_;
    const auto* job = job_;
    lock.unlock();
    (*job)();
    lock.lock();
    if (--running_ == 0) done_.notify_all();
  }
}

WorkerPool::~WorkerPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& t : threads_) t.join();
}

}  // namespace emulator
