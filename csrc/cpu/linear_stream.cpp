#include "cpu/linear_stream.h"

#include <algorithm>
#include <limits>

namespace saragossa::cpu {
namespace {

// Tuning. A task of the matvec form reads about kTaskBytes of weights, 1 to 2 us of one core: that bounds the wait at
// the end of an op, and taking a task costs some 10 ns.
constexpr int64_t kTaskBytes = 16 * 1024;
constexpr int64_t kMatvecOutStep = 8;
constexpr int64_t kMatmulTaskOuts = 32;
constexpr int64_t kIdleBytes = 256 * 1024;  // that a waiting worker fetches: a part of the second cache

int64_t scale_bytes_of(const Matrix& w) { return w.bits ? w.in / w.group * size_of(w.dtype) : 0; }

/// About kTaskBytes, and such that the longest share is short.
int64_t matvec_chunk(const Matrix& w, int workers) {
  const int64_t fit = std::max<int64_t>(kTaskBytes / std::max<int64_t>(row_bytes_of(w), 1), 1);
  const int64_t most = (fit + kMatvecOutStep - 1) / kMatvecOutStep * kMatvecOutStep;
  int64_t best = most;
  int64_t longest = std::numeric_limits<int64_t>::max();
  for (int64_t chunk = most; 2 * chunk > most; chunk -= kMatvecOutStep) {
    const int64_t tasks = (w.out + chunk - 1) / chunk;
    const int64_t share = (tasks + workers - 1) / workers * chunk;
    if (share < longest) {
      longest = share;
      best = chunk;
    }
  }
  return best;
}

}  // namespace

WeightsAt weights_at(const Matrix& w, int64_t o) {
  const int64_t scales = o * scale_bytes_of(w);
  return {w.data + o * row_bytes_of(w), w.scales + scales, w.biases + scales};
}

Soon soon_of(const Matrix& w, int64_t begin, int64_t end) {
  const int64_t fits = kIdleBytes / std::max<int64_t>(row_bytes_of(w), 1);
  const int64_t rows = std::min({w.out, end, begin + fits}) - begin;
  const WeightsAt start = weights_at(w, begin);
  return {{{start.data, rows * row_bytes_of(w)},
           {start.scales, rows * scale_bytes_of(w)},
           {start.biases, rows * scale_bytes_of(w)}}};
}

FirstWeights first_weights(const LinearJob& job, const LinearKernels& kernels, int workers, int worker) {
  const LinearPlan plan(job, kernels, workers);
  const ThreadPool::Share share = ThreadPool::share(plan.tasks(), worker, workers);
  if (share.begin == share.end) return {};
  const int i = plan.output(share.begin);
  const Matrix& w = job.outs[i].w;
  const int64_t begin = plan.begin(i, share.begin);
  return {i, weights_at(w, begin), soon_of(w, begin, plan.begin(i, share.end))};
}

LinearPlan::LinearPlan(const LinearJob& job, const LinearKernels& kernels, int workers)
    : n_outs(job.epilogue == LinearEpilogue::gated ? 1 : job.n_outs) {
  for (int i = 0; i < n_outs; ++i) {
    const Matrix& w = job.outs[i].w;
    chunk[i] = job.rows > kMatvecRows
                   ? (kMatmulTaskOuts + kernels.matmul_outs - 1) / kernels.matmul_outs * kernels.matmul_outs
                   : matvec_chunk(w, workers);
    first[i + 1] = first[i] + (w.out + chunk[i] - 1) / chunk[i];
  }
}

Soon WeightStream::open(const LinearJob& job, const LinearPlan& plan, const LinearKernels& kernels, int workers,
                        int worker) {
  share_ = ThreadPool::share(plan.tasks(), worker, workers);
  after_ = {};
  const bool works = share_.begin < share_.end;
  const int last = works ? plan.output(share_.end - 1) : 0;
  if (works) {
    for (int i = plan.output(share_.begin); i < last; ++i) {
      after_[static_cast<size_t>(i)] = weights_at(job.outs[i + 1].w, 0);
      after_output_[static_cast<size_t>(i)] = i + 1;
    }
  }
  if (!job.next) return {};
  const FirstWeights next = first_weights(*job.next, kernels, workers, worker);
  if (works && next.start.data) {
    after_[static_cast<size_t>(last)] = next.start;
    after_output_[static_cast<size_t>(last)] = next.output;
  }
  return next.soon;
}

Upcoming WeightStream::tile(const LinearJob& job, const LinearPlan& plan, int64_t task, int which, int64_t begin,
                            int64_t end) {
  const Matrix& w = job.outs[which].w;
  const uint8_t*& asked = asked_[static_cast<size_t>(which)];
  Upcoming up;
  up.asked = asked == w.data + begin * row_bytes_of(w);
  up.end = end;
  asked = w.data + end * row_bytes_of(w);
  if (task < share_.begin || task >= share_.end) return up;  // taken from another worker
  const int i = plan.output(task);
  up.end = std::min(w.out, plan.begin(i, share_.end));
  if (which != i) return up;  // the second of a gated job
  up.after = after_[static_cast<size_t>(i)];
  if (end == up.end && up.after.data)
    asked_[static_cast<size_t>(after_output_[static_cast<size_t>(i)])] = up.after.data;
  return up;
}

}  // namespace saragossa::cpu
