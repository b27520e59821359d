#include "execute.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>

#include "access.h"
#include "counters.h"
#include "report.h"
#include "settings.h"
#include "worker.h"
#include "worker_pool.h"

#include <immintrin.h>

extern "C" {
extern int emulator_perturb_ulp, emulator_cooperative_layout;
extern unsigned long emulator_perturb_seed;
}

namespace emulator {
namespace {

/// Denormals of float32 are zero while a kernel runs, as Apple's GPUs have it; those of half stay.
class FlushDenormals {
 public:
  FlushDenormals() : before_(_mm_getcsr()) {
    if (settings().ftz) _mm_setcsr(before_ | 0x8040);
  }
  ~FlushDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
};

/// Threadgroups in the order of Settings::order.
std::vector<uint32_t> group_order(uint32_t count, const Dispatch& dispatch) {
  std::vector<uint32_t> order;
  if (settings().order == Order::in_order) return order;  // empty: as numbered
  order.resize(count);
  for (uint32_t i = 0; i < count; i++) order[i] = count - 1 - i;
  if (settings().order == Order::random) {
    std::mt19937_64 random(settings().seed * 1000003 + dispatch.sequence);
    std::shuffle(order.begin(), order.end(), random);
  }
  return order;
}

/// Runs one dispatch on the workers; what they touched goes into `record`.
class Run {
 public:
  explicit Run(const Dispatch& dispatch) : dispatch_(dispatch) {
    for (int i = 0; i < 3; i++)
      groups_[i] = (dispatch.grid[i] + dispatch.threads_per_threadgroup[i] - 1) / dispatch.threads_per_threadgroup[i];
    count_ = groups_[0] * groups_[1] * groups_[2];
    order_ = group_order(count_, dispatch);
  }

  void run() {
    const uint64_t threads = uint64_t{dispatch_.grid[0]} * dispatch_.grid[1] * dispatch_.grid[2];
    calls().dispatches++;
    calls().threads += threads;
    // Small ones are done before another worker wakes up.
    const bool alone = settings().check || count_ < 4 || threads < 2048;
    if (alone)
      work();
    else
      WorkerPool::instance().run([this] { work(); });
    if (settings().instrumented()) record(threads);
  }

 private:
  void work() {
    FlushDenormals flush;
    Worker& worker = this_thread_worker();
    worker.begin_dispatch(dispatch_);
    const uint32_t chunk = std::max<uint32_t>(1, count_ / 16);
    for (uint32_t begin; (begin = next_.fetch_add(chunk)) < count_;)
      for (uint32_t i = begin; i < std::min(begin + chunk, count_); i++) {
        const uint32_t n = order_.empty() ? i : order_[i];
        worker.run_group({n % groups_[0], n / groups_[0] % groups_[1], n / groups_[0] / groups_[1]}, groups_);
      }
    worker.end_dispatch();
    std::lock_guard lock(tally_mutex_);
    worker.access.add_to(tally_);
  }

  void record(uint64_t threads) {
    DispatchRecord record{dispatch_.sequence, dispatch_.kernel->name, dispatch_.label, threads, {}, {}};
    tally_.finish(record);
    record_dispatch(std::move(record));
  }

  const Dispatch& dispatch_;
  std::array<uint32_t, 3> groups_{};
  uint32_t count_ = 0;
  std::vector<uint32_t> order_;
  std::atomic<uint32_t> next_{0};
  std::mutex tally_mutex_;
  Tally tally_;
};

void apply_settings() {
  const Settings& s = settings();
  emulator_perturb_ulp = s.perturb_fast;
  emulator_perturb_seed = s.seed;
  emulator_cooperative_layout = s.shuffle_cooperative ? static_cast<int>(s.seed % 1000) + 1 : 0;
}

}  // namespace

void run(std::span<const Dispatch> unordered) {
  static std::mutex turn;  // queues take turns
  std::lock_guard lock(turn);
  apply_settings();
  std::vector<const Dispatch*> list;
  for (const Dispatch& d : unordered) list.push_back(&d);
  if (settings().reorder && list.size() > 1) {
    std::mt19937_64 random(settings().seed * 77777 + list[0]->sequence);
    std::shuffle(list.begin(), list.end(), random);
  }
  for (const Dispatch* d : list) {
    if (!validate(*d)) continue;
    if (settings().execute)
      Run(*d).run();
    else
      ++calls().dispatches;
  }
}

}  // namespace emulator
