// The thread pool and what decides its size. Linears themselves are tested through the encoder.

#include <pybind11/stl.h>

#include <atomic>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "core/errors.h"
#include "core/thread_pool.h"
#include "core/usable_cores.h"
#include "cpu/linear_stream.h"
#include "python/core_test/core_test.h"

namespace saragossa {
namespace {

/// How often each task ran.
std::vector<int> run_counts(ThreadPool& pool, int64_t tasks) {
  std::vector<std::atomic<int>> ran(static_cast<size_t>(tasks));
  pool.run(tasks, [&](int64_t task, int worker) {
    require(worker >= 0 && worker < pool.size(), "worker ", worker);
    ++ran[static_cast<size_t>(task)];
  });
  return {ran.begin(), ran.end()};
}

/// Tasks that ran, each of which runs a loop of `inner` tasks on the same pool.
int64_t run_nested(ThreadPool& pool, int64_t tasks, int64_t inner) {
  std::atomic<int64_t> ran{0};
  pool.run(tasks, [&](int64_t, int) { pool.run(inner, [&](int64_t, int) { ++ran; }); });
  return ran;
}

void run_failing(ThreadPool& pool, int64_t tasks, int64_t bad) {
  pool.run(tasks, [&](int64_t task, int) {
    if (task == bad) throw std::runtime_error("task " + std::to_string(task));
  });
}

/// What each worker reads for a chain of jobs, each a list of [out, in] that share an input: per tile the address of
/// its first codes, whether they were asked for, where the worker's share of the matrix ends and what is fetched behind
/// it. Addresses count from 1 (0: none); nothing is read.
using Tile = std::tuple<uintptr_t, bool, uintptr_t, uintptr_t>;
std::vector<std::vector<Tile>> reading_order(const std::vector<std::vector<std::pair<int64_t, int64_t>>>& chain,
                                             bool gated, int threads) {
  ThreadPool pool(threads, 0);
  cpu::LinearKernels kernels{};
  kernels.matmul_outs = 1;
  std::vector<cpu::LinearJob> jobs(chain.size());
  uintptr_t next = 1;
  for (size_t j = 0; j < chain.size(); ++j) {
    require(chain[j].size() <= 3, "reading_order: at most three outputs");
    jobs[j].rows = 1;
    jobs[j].n_outs = static_cast<int>(chain[j].size());
    if (gated && chain[j].size() == 2) jobs[j].epilogue = cpu::LinearEpilogue::gated;
    if (j + 1 < chain.size()) jobs[j].next = &jobs[j + 1];
    for (size_t i = 0; i < chain[j].size(); ++i) {
      cpu::Matrix& w = jobs[j].outs[i].w;
      std::tie(w.out, w.in) = chain[j][i];
      w.bits = 4;
      w.group = 32;
      w.dtype = DType::bf16;
      w.data = reinterpret_cast<const uint8_t*>(next);
      next += static_cast<uintptr_t>(w.out * cpu::row_bytes_of(w));
    }
  }
  const auto number = [](const uint8_t* p) { return reinterpret_cast<uintptr_t>(p); };
  std::vector<std::vector<Tile>> order(static_cast<size_t>(threads));
  for (int worker = 0; worker < threads; ++worker) {
    cpu::WeightStream stream;
    for (const cpu::LinearJob& job : jobs) {
      const cpu::LinearPlan plan(job, kernels, threads);
      stream.open(job, plan, kernels, pool, worker);
      const ThreadPool::Share share = pool.share(plan.tasks(), worker);
      for (int64_t task = share.begin; task < share.end; ++task) {
        const int i = plan.output(task);
        for (int which = i; which < (job.epilogue == cpu::LinearEpilogue::gated ? 2 : i + 1); ++which) {
          const cpu::Matrix& w = job.outs[which].w;
          const int64_t begin = plan.begin(i, task);
          const int64_t end = std::min(begin + plan.chunk[i], w.out);
          const cpu::Upcoming up = stream.tile(job, plan, task, which, begin, end);
          order[static_cast<size_t>(worker)].emplace_back(number(w.data + begin * cpu::row_bytes_of(w)), up.asked,
                                                          number(w.data + up.end * cpu::row_bytes_of(w)),
                                                          number(up.after.data));
        }
      }
    }
  }
  return order;
}

}  // namespace

void register_linear(py::module_& m) {
  const auto release = py::call_guard<py::gil_scoped_release>();
  py::class_<ThreadPool>(m, "ThreadPool")
      .def(py::init<int, int>(), py::arg("threads"), py::arg("spin_us") = 50)
      .def_property_readonly("size", &ThreadPool::size)
      .def("run_counts", &run_counts, release)
      .def("run_nested", &run_nested, release)
      .def("run_failing", &run_failing, release);
  m.def("reading_order", &reading_order, py::arg("chain"), py::arg("gated"), py::arg("threads"));
  m.def("usable_cores", &usable_cores);
  m.def("cgroup_quota", &cgroup_quota, py::arg("root"));
  m.def("performance_cores", &performance_cores, py::arg("root"), py::arg("cpus"));
  m.def("parse_cpu_list", &parse_cpu_list, py::arg("text"));
}

}  // namespace saragossa
