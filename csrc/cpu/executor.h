#pragma once
// What the ops of the CPU device run on: the pool, the kernels, and buffers kept between steps.

#include <algorithm>
#include <mutex>

#include "cpu/attention.h"
#include "cpu/linear.h"
#include "cpu/moe_engine.h"
#include "cpu/rope_table.h"
#include "cpu/sample.h"
#include "cpu/vector_kernels.h"

namespace saragossa::cpu {

struct Executor {
  explicit Executor(const Switches& s)
      : isa(select(s.isa)),
        pool(s.threads, s.spin_us),
        linear(isa, s.activations, pool),
        moe(isa, s.activations, pool),
        kernels(vector_kernels(isa)),
        chunked_delta(s.chunked_delta && s.activations != Activations::f32) {}

  /// fn(begin, end) over [0, n) rows of `row_work` floats: on the caller where that is little, else in chunks.
  template <class Fn>
  void rows(int64_t n, int64_t row_work, Fn&& fn) {
    constexpr int64_t kChunk = 16 * 1024;  // floats
    if (n * row_work <= 2 * kChunk) return fn(0, n);
    const int64_t chunk = std::max<int64_t>(1, kChunk / std::max<int64_t>(1, row_work));
    pool.run((n + chunk - 1) / chunk, [&](int64_t task, int) { fn(task * chunk, std::min(n, (task + 1) * chunk)); });
  }

  std::mutex mutex;  // held while a submission runs
  Isa isa;
  ThreadPool pool;
  LinearEngine linear;
  MoeEngine moe;
  const VectorKernels& kernels;
  const bool chunked_delta;  // not in the exact mode
  RopeTable rope_table;
  AttentionWorkspace attention;
  SampleWorkspace sample;
  DeltaWorkspace delta;
};

}  // namespace saragossa::cpu
