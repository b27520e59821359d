#pragma once
// A pool that runs one parallel loop at a time; the caller takes part.

#include <cstdint>
#include <memory>
#include <type_traits>

namespace saragossa {

/// Cores that this process should use: performance cores, within affinity and the cgroup's CPU quota. At least 1.
int usable_cores();

class ThreadPool {
 public:
  /// threads 0: usable_cores(). Workers spin for spin_us after a loop, then sleep.
  ThreadPool(int threads, int spin_us);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;

  /// Calls fn(task, worker) for each task in [0, tasks), worker in [0, size()); returns when all are done.
  /// Tasks are handed out one by one, so a thread that is descheduled holds back one task only.
  template <class Fn>
  void run(int64_t tasks, Fn&& fn) {
    using Target = std::remove_reference_t<Fn>;
    run_erased(
        tasks, [](void* context, int64_t task, int worker) { (*static_cast<Target*>(context))(task, worker); },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  using Thunk = void (*)(void* context, int64_t task, int worker);
  void stop_workers();
  void run_erased(int64_t tasks, Thunk thunk, void* context);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace saragossa
