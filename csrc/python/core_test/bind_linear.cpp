// The thread pool and what decides its size. Linears themselves are tested through the encoder.

#include <pybind11/stl.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <thread>
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

/// (task, worker) as they ran; tasks of worker `slow` take a while.
std::vector<std::pair<int64_t, int>> run_order(ThreadPool& pool, int64_t tasks, int slow) {
  std::mutex mutex;
  std::vector<std::pair<int64_t, int>> order;
  pool.run(tasks, [&](int64_t task, int worker) {
    {
      const std::lock_guard lock(mutex);
      order.emplace_back(task, worker);
    }
    if (worker == slow) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  });
  return order;
}

struct Tile {
  int64_t at, end;  // codes of the tile
  bool asked;
  int64_t share_end, after;  // where the worker's share of the matrix ends, and what is fetched behind it
};

/// What a worker reads, job by job, and the codes that it fetches between a job and the next: address and bytes.
struct Reading {
  std::vector<Tile> tiles;
  std::vector<std::pair<int64_t, int64_t>> idle;
};

/// Of each worker, for a chain of jobs, each a list of [out, in] that share an input. Addresses count from 1 (0: none);
/// nothing is read.
std::vector<Reading> reading_order(const std::vector<std::vector<std::pair<int64_t, int64_t>>>& chain, bool gated,
                                   int workers) {
  cpu::LinearKernels kernels{};
  kernels.matmul_outs = 1;
  std::vector<cpu::LinearJob> jobs(chain.size());
  uintptr_t next = 1;
  for (size_t j = 0; j < chain.size(); ++j) {
    require(chain[j].size() <= cpu::kLinearOuts, "reading_order: at most four outputs");
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
      w.data = w.scales = w.biases = reinterpret_cast<const uint8_t*>(next);
      next += static_cast<uintptr_t>(w.out * cpu::row_bytes_of(w));
    }
  }
  const auto number = [](const uint8_t* p) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(p)); };
  std::vector<Reading> all(static_cast<size_t>(workers));
  for (int worker = 0; worker < workers; ++worker) {
    Reading& reading = all[static_cast<size_t>(worker)];
    cpu::WeightStream stream;
    for (const cpu::LinearJob& job : jobs) {
      const cpu::LinearPlan plan(job, kernels, workers);
      const auto soon = stream.open(job, plan, kernels, workers, worker);
      reading.idle.emplace_back(number(soon[0].at), soon[0].bytes);
      const ThreadPool::Share share = ThreadPool::share(plan.tasks(), worker, workers);
      for (int64_t task = share.begin; task < share.end; ++task) {
        const int i = plan.output(task);
        const int last = job.epilogue == cpu::LinearEpilogue::gated ? 1 : i;
        for (int which = i; which <= last; ++which) {
          const cpu::Matrix& w = job.outs[which].w;
          const auto codes = [&](int64_t o) { return number(w.data) + o * cpu::row_bytes_of(w); };
          const int64_t begin = plan.begin(i, task);
          const int64_t end = std::min(begin + plan.chunk[i], w.out);
          const cpu::Upcoming up = stream.tile(job, plan, task, which, begin, end);
          reading.tiles.push_back({codes(begin), codes(end), up.asked, codes(up.end), number(up.after.data)});
        }
      }
    }
  }
  return all;
}

}  // namespace

void register_linear(py::module_& m) {
  const auto release = py::call_guard<py::gil_scoped_release>();
  py::class_<ThreadPool>(m, "ThreadPool")
      .def(py::init<int, int>(), py::arg("threads"), py::arg("spin_us") = 50)
      .def_property_readonly("size", &ThreadPool::size)
      .def("run_counts", &run_counts, release)
      .def("run_nested", &run_nested, release)
      .def("run_failing", &run_failing, release)
      .def("run_order", &run_order, release, py::arg("tasks"), py::arg("slow"))
      .def(
          "run_empty", [](ThreadPool& pool, int64_t tasks) { pool.run(tasks, [](int64_t, int) {}); }, release)
      .def_static("share", [](int64_t tasks, int worker, int workers) {
        const ThreadPool::Share s = ThreadPool::share(tasks, worker, workers);
        return std::pair(s.begin, s.end);
      });
  py::class_<Tile>(m, "Tile")
      .def_readonly("at", &Tile::at)
      .def_readonly("end", &Tile::end)
      .def_readonly("asked", &Tile::asked)
      .def_readonly("share_end", &Tile::share_end)
      .def_readonly("after", &Tile::after);
  py::class_<Reading>(m, "Reading").def_readonly("tiles", &Reading::tiles).def_readonly("idle", &Reading::idle);
  m.def("reading_order", &reading_order, py::arg("chain"), py::arg("gated"), py::arg("workers"));
  m.def("usable_cores", &usable_cores);
  m.def("cgroup_quota", &cgroup_quota, py::arg("root"));
  m.def("performance_cores", &performance_cores, py::arg("root"), py::arg("cpus"));
  m.def("parse_cpu_list", &parse_cpu_list, py::arg("text"));
}

}  // namespace saragossa
