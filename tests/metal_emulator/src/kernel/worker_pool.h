#pragma once
// OS threads that help the calling one. They sleep between jobs.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace emulator {

class WorkerPool {
 public:
  static WorkerPool& instance();

  /// Runs `job` on the calling thread and on Settings::workers - 1 others; returns when all are done.
  void run(const std::function<void()>& job);

  ~WorkerPool();

 private:
  void loop(size_t number);

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void()>* job_ = nullptr;
  uint64_t round_ = 0;
  size_t wanted_ = 0, running_ = 0;
  bool stop_ = false;
};

}  // namespace emulator
