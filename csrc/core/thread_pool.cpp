#include "core/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/errors.h"
#include "core/forks.h"

namespace saragossa {
namespace {

// Fork/join by one word, `state`:
//   bits 0-9   workers inside the loop
//   bit 10     the caller sleeps until they have left
//   bits 11-   epoch, odd while a loop is open
// A worker enters by compare-and-swap while the loop is open and leaves by a decrement. The caller closes
// the loop when no task is left and waits only for those inside: a worker that did not get a core in time
// is not waited for. Tasks are dealt as one contiguous range per worker (neighbouring rows of a weight
// stay on one core); who has finished its range takes from the ends
// of the others'.
constexpr uint32_t kInside = (1u << 10) - 1;
constexpr uint32_t kCallerSleeps = 1u << 10;
constexpr uint32_t kEpoch = 1u << 11;
constexpr int kMaxThreads = 512;

constexpr uint32_t epoch_of(uint32_t state) { return state & ~(kEpoch - 1); }
constexpr bool is_open(uint32_t state) { return (state & kEpoch) != 0; }

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

thread_local bool t_inside_loop = false;

}  // namespace

struct ThreadPool::Impl {
  /// Tasks [begin, end) that nobody has taken: the owner takes the first one, others the last.
  class alignas(64) Range {
   public:
    void set(const Share& s) {
      span_.store(static_cast<uint64_t>(s.end) << 32 | static_cast<uint64_t>(s.begin), std::memory_order_relaxed);
    }
    /// -1: none is left.
    int64_t take(bool own) {
      uint64_t span = span_.load(std::memory_order_relaxed);
      while (begin(span) < end(span)) {
        const uint64_t rest = own ? span + 1 : span - (uint64_t{1} << 32);
        if (span_.compare_exchange_weak(span, rest, std::memory_order_relaxed)) return own ? begin(span) : end(rest);
      }
      return -1;
    }

   private:
    static int64_t begin(uint64_t span) { return static_cast<int64_t>(span & 0xffffffff); }
    static int64_t end(uint64_t span) { return static_cast<int64_t>(span >> 32); }
    std::atomic<uint64_t> span_{0};
  };

  /// What a worker fetches while it waits; only that worker touches it.
  class alignas(64) Fetch {
   public:
    void set(const std::array<Soon, 3>& soon) {
      soon_ = soon;
      part_ = 0;
    }
    /// A few lines; false: nothing is left.
    bool step() {
      constexpr int64_t kLine = 64, kStep = 8 * kLine;
      while (part_ < soon_.size() && soon_[part_].bytes <= 0) ++part_;
      if (part_ == soon_.size()) return false;
      Soon& soon = soon_[part_];
      for (int64_t i = 0; i < std::min(kStep, soon.bytes); i += kLine) __builtin_prefetch(soon.at + i, 0, 2);
      soon.at += kStep;
      soon.bytes -= kStep;
      return true;
    }

   private:
    std::array<Soon, 3> soon_{};
    size_t part_ = 3;
  };

  alignas(64) std::atomic<uint32_t> state{0};
  alignas(64) std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};
  // The loop that is open; written only while nobody is inside.
  alignas(64) Thunk thunk = nullptr;
  void* context = nullptr;
  std::vector<Range> ranges;
  std::vector<Fetch> fetches;

  std::mutex one_loop;
  std::mutex error_mutex;
  std::exception_ptr error;
  std::atomic<bool> failed{false};
  int size;
  int forks_at_start = 0;
  std::chrono::nanoseconds spin;
  std::vector<std::thread> threads;

  Impl(int n, int spin_us)
      : ranges(static_cast<size_t>(n)),
        fetches(static_cast<size_t>(n)),
        size(n),
        spin(std::chrono::microseconds(spin_us)) {}

  void take_tasks(int worker) {
    t_inside_loop = true;
    try {
      for (int i = 0; i < size; ++i) {
        const int victim = worker + i < size ? worker + i : worker + i - size;
        Range& range = ranges[static_cast<size_t>(victim)];
        int64_t task = 0;
        while ((task = range.take(i == 0)) >= 0) {
          if (failed.load(std::memory_order_relaxed)) break;
          thunk(context, task, worker);
        }
      }
    } catch (...) {
      const std::lock_guard<std::mutex> lock(error_mutex);
      if (!error) error = std::current_exception();
      failed.store(true, std::memory_order_relaxed);
    }
    t_inside_loop = false;
  }

  /// Waits for a loop after `seen`: spins, then sleeps.
  uint32_t await_loop(uint32_t seen, int worker) {
    const auto is_new = [&](uint32_t s) { return is_open(s) && epoch_of(s) != seen; };
    const auto start = std::chrono::steady_clock::now();
    Fetch& fetch = fetches[static_cast<size_t>(worker)];
    bool more = true;
    for (;;) {
      for (int i = 0; i < 64; ++i) {
        const uint32_t s = state.load(std::memory_order_acquire);
        if (is_new(s) || stop.load(std::memory_order_relaxed)) return s;
        if (more)
          more = fetch.step();
        else
          cpu_relax();
      }
      if (std::chrono::steady_clock::now() - start < spin) continue;
      // The caller reads `sleepers` after it has opened the loop; both are seq_cst, so either it sees this
      // sleeper and wakes it, or the sleeper sees the loop.
      sleepers.fetch_add(1);
      const uint32_t s = state.load();
      if (!is_new(s) && !stop.load()) state.wait(s);
      sleepers.fetch_sub(1);
      const uint32_t now = state.load(std::memory_order_acquire);
      if (is_new(now) || stop.load(std::memory_order_relaxed)) return now;
    }
  }

  void work(int worker) {
    uint32_t seen = 0;
    for (;;) {
      uint32_t s = await_loop(seen, worker);
      if (stop.load(std::memory_order_relaxed)) return;
      seen = epoch_of(s);
      bool entered = false;
      while (is_open(s) && epoch_of(s) == seen && !entered)
        entered = state.compare_exchange_weak(s, s + 1, std::memory_order_acquire);
      if (!entered) continue;
      take_tasks(worker);
      const uint32_t before = state.fetch_sub(1, std::memory_order_acq_rel);
      if ((before & kInside) == 1 && (before & kCallerSleeps)) state.notify_all();
    }
  }

  /// Waits until no worker is inside: spins for the length of a short task, yields, sleeps.
  void await_workers() {
    for (int i = 0; i < 2000; ++i) {
      if ((state.load(std::memory_order_acquire) & kInside) == 0) return;
      cpu_relax();
    }
    for (int i = 0; i < 50; ++i) {
      if ((state.load(std::memory_order_acquire) & kInside) == 0) return;
      std::this_thread::yield();
    }
    uint32_t s = state.fetch_or(kCallerSleeps) | kCallerSleeps;
    while ((s & kInside) != 0) {
      state.wait(s);
      s = state.load(std::memory_order_acquire);
    }
    state.fetch_and(~kCallerSleeps);
  }

  void run(int64_t tasks, Thunk loop_thunk, void* loop_context) {
    const std::lock_guard<std::mutex> lock(one_loop);
    thunk = loop_thunk;
    context = loop_context;
    for (int w = 0; w < size; ++w) ranges[static_cast<size_t>(w)].set(share(tasks, w, size));
    state.fetch_add(kEpoch);  // open
    if (sleepers.load() > 0) state.notify_all();
    take_tasks(0);
    state.fetch_add(kEpoch, std::memory_order_acq_rel);  // closed
    await_workers();
    if (failed.load(std::memory_order_relaxed)) {
      failed.store(false, std::memory_order_relaxed);
      std::rethrow_exception(std::exchange(error, nullptr));
    }
  }
};

ThreadPool::ThreadPool(int threads, int spin_us) {
  int n = threads > 0 ? threads : usable_cores();
  n = std::min(n, kMaxThreads);
  impl_ = std::make_unique<Impl>(n, std::max(spin_us, 0));
  impl_->forks_at_start = forks();
  try {
    for (int w = 1; w < n; ++w) impl_->threads.emplace_back([impl = impl_.get(), w] { impl->work(w); });
  } catch (const std::system_error& e) {
    stop_workers();
    fail(ErrorKind::device, "thread ", impl_->threads.size() + 2, " of ", n, " cannot be started: ", e.what(),
         "; use fewer (--threads)");
  }
}

void ThreadPool::stop_workers() {
  impl_->stop.store(true);
  impl_->state.fetch_add(2 * kEpoch);  // a changed value ends their wait
  impl_->state.notify_all();
  for (std::thread& thread : impl_->threads) thread.join();
}

ThreadPool::~ThreadPool() {
  if (impl_->forks_at_start != forks()) {
    // In a forked child the workers do not exist, so they cannot be joined; their handles are left behind.
    static_cast<void>(impl_.release());
    return;
  }
  stop_workers();
}

void ThreadPool::fetch_when_idle(int worker, const std::array<Soon, 3>& soon) {
  if (worker > 0) impl_->fetches[static_cast<size_t>(worker)].set(soon);
}

int ThreadPool::size() const { return impl_->size; }

ThreadPool::Share ThreadPool::share(int64_t tasks, int worker, int workers) {
  if (tasks <= 1) return {0, worker == 0 ? tasks : 0};  // the caller's
  return {tasks * worker / workers, tasks * (worker + 1) / workers};
}

void ThreadPool::run_erased(int64_t tasks, Thunk thunk, void* context) {
  require(tasks < int64_t{1} << 31, "thread pool: ", tasks, " tasks, at most 2^31 - 1 are supported");
  // One task, one thread, a loop inside a loop, or a forked child: the caller does it all.
  if (tasks <= 1 || impl_->size == 1 || t_inside_loop || impl_->forks_at_start != forks()) {
    for (int64_t task = 0; task < tasks; ++task) thunk(context, task, 0);
    return;
  }
  impl_->run(tasks, thunk, context);
}

}  // namespace saragossa
