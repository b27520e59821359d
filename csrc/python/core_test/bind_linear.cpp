// The thread pool and what decides its size. Linears themselves are tested through the encoder.

#include <pybind11/stl.h>

#include <atomic>
#include <stdexcept>

#include "core/errors.h"
#include "core/thread_pool.h"
#include "core/usable_cores.h"
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

}  // namespace

void register_linear(py::module_& m) {
  const auto release = py::call_guard<py::gil_scoped_release>();
  py::class_<ThreadPool>(m, "ThreadPool")
      .def(py::init<int, int>(), py::arg("threads"), py::arg("spin_us") = 50)
      .def_property_readonly("size", &ThreadPool::size)
      .def("run_counts", &run_counts, release)
      .def("run_nested", &run_nested, release)
      .def("run_failing", &run_failing, release);
  m.def("usable_cores", &usable_cores);
  m.def("cgroup_quota", &cgroup_quota, py::arg("root"));
  m.def("performance_cores", &performance_cores, py::arg("root"), py::arg("cpus"));
  m.def("parse_cpu_list", &parse_cpu_list, py::arg("text"));
}

}  // namespace saragossa
