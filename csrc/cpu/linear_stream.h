#pragma once
// How a linear is dealt to the workers, and what each of them reads when: so that the weights behind those at hand are
// fetched ahead, across outputs and ops. The hints change no result.

#include <array>

#include "cpu/linear_kernels.h"

namespace saragossa::cpu {

/// Tasks [first[i], first[i + 1]) have chunk[i] outputs each of output i. The two of a gated job go together.
struct LinearPlan {
  int n_outs = 0;
  int64_t chunk[kLinearOuts] = {};
  int64_t first[kLinearOuts + 1] = {};

  LinearPlan(const LinearJob& job, const LinearKernels& kernels, int workers);

  int64_t tasks() const { return first[n_outs]; }
  int output(int64_t task) const {
    int i = 0;
    while (task >= first[i + 1]) ++i;
    return i;
  }
  int64_t begin(int i, int64_t task) const { return (task - first[i]) * chunk[i]; }
};

/// Row o of a matrix.
WeightsAt weights_at(const Matrix& w, int64_t o);

/// What a worker can fetch while it waits for the next job.
using Soon = std::array<ThreadPool::Soon, 3>;
/// Rows [begin, end) of a matrix, a part of the second cache at most.
Soon soon_of(const Matrix& w, int64_t begin, int64_t end);

/// What a worker reads first of a job; no start: nothing.
struct FirstWeights {
  int output = 0;
  WeightsAt start;
  Soon soon{};
};
FirstWeights first_weights(const LinearJob& job, const LinearKernels& kernels, int workers, int worker);

/// What one worker reads.
class WeightStream {
 public:
  /// A loop begins for one of `workers`. job.next may be asked for its shapes and addresses.
  Soon open(const LinearJob& job, const LinearPlan& plan, const LinearKernels& kernels, int workers, int worker);

  /// The hints for rows [begin, end) of output `which`, which are those of `task`. The kernel must act on them: that
  /// they were given is remembered.
  Upcoming tile(const LinearJob& job, const LinearPlan& plan, int64_t task, int which, int64_t begin, int64_t end);

 private:
  ThreadPool::Share share_{};
  std::array<WeightsAt, kLinearOuts> after_{};   // of each output, what is read behind the worker's share of it
  std::array<int, kLinearOuts> after_output_{};  // and which output of its job that is
  /// Of each output, the codes whose first bytes are on their way. (Of a gated job the second entry may already stand
  /// for the next one when its last tile begins: that tile asks again.)
  std::array<const uint8_t*, kLinearOuts> asked_{};
};

}  // namespace saragossa::cpu
