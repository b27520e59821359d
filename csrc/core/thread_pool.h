#pragma once
// A pool that runs one parallel loop at a time; the caller takes part.

#include <array>
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

  /// The tasks of a loop that are a worker's own, which it does in ascending order. Who has done its own takes the last
  /// one of another's.
  struct Share {
    int64_t begin, end;
  };
  Share share(int64_t tasks, int worker) const;

  /// Bytes that a worker will probably read in the next loop; it brings them into its cache while it waits for that.
  struct Soon {
    const uint8_t* at = nullptr;
    int64_t bytes = 0;
  };
  /// To be called from a task, for its own worker; for the caller of run (worker 0), who does not wait, nothing
  /// happens.
  void fetch_when_idle(int worker, const std::array<Soon, 3>& soon);

  /// Calls fn(task, worker) for each task in [0, tasks), worker in [0, size()); returns when all are done.
  /// Tasks are handed out one by one, so a thread that is descheduled holds back one task only. At most 2^31 tasks.
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
