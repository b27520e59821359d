#include "cpu/isa.h"
#include "device.h"
#include "metal/metal_device.h"
#include "python/bindings.h"

#include <pybind11/stl.h>

#include <chrono>
#include <thread>

#include "core/thread_pool.h"
#include "core/trim.h"

namespace saragossa {
namespace {

Activations activations_from(const std::string& name) {
  if (name == "f32") return Activations::f32;
  if (name == "int15") return Activations::int15;
  if (name == "int8") return Activations::int8;
  fail(ErrorKind::usage, "activations '", name, "' are unknown; supported are f32, int15, int8");
}

/// Ctrl-C in the middle of a long submission: Python's handlers run, and what they raise ends it.
void raise_pending_signal() {
  ReleasedGil::park_if_finalizing();
  const py::gil_scoped_acquire acquired;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

}  // namespace

void ReleasedGil::park_if_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  const bool ends = Py_IsFinalizing();
#else
  const bool ends = _Py_IsFinalizing();
#endif
  while (ends) std::this_thread::sleep_for(std::chrono::hours(1));
}

void bind_device(py::module_& m) {
  // Module-local: the test-only module binds some of the same types.
  py::class_<Device, std::shared_ptr<Device>>(m, "Device", py::module_local())
      .def(py::init([](const std::string& name, bool fused, const std::string& activations, const std::string& isa,
                       int threads, int spin_us, bool cpu_fetch_ahead, bool chunked_delta, bool run_ahead,
                       bool metal_resident, bool metal_matmul, bool metal_tensor_ops, bool metal_statistics,
                       bool metal_split_matmul, bool metal_sorted_experts, bool metal_simdgroup_attention,
                       int64_t metal_command_macs, const std::string& kernel_cache) {
             if (threads < 0) fail(ErrorKind::usage, "threads ", threads, ", expected 0 (automatic) or more");
             if (metal_command_macs < 0)
               fail(ErrorKind::usage, "metal_command_macs ", metal_command_macs, ", expected 0 (automatic) or more");
             Switches switches;
             switches.fused = fused;
             switches.activations = activations_from(activations);
             switches.isa = isa;
             switches.threads = threads;
             switches.spin_us = spin_us;
             switches.cpu_fetch_ahead = cpu_fetch_ahead;
             switches.chunked_delta = chunked_delta;
             switches.run_ahead = run_ahead;
             switches.metal_resident = metal_resident;
             switches.metal_matmul = metal_matmul;
             switches.metal_tensor_ops = metal_tensor_ops;
             switches.metal_statistics = metal_statistics;
             switches.metal_split_matmul = metal_split_matmul;
             switches.metal_sorted_experts = metal_sorted_experts;
             switches.metal_simdgroup_attention = metal_simdgroup_attention;
             switches.metal_command_macs = metal_command_macs;
             switches.kernel_cache = kernel_cache;
             std::shared_ptr<Device> device = make_device(name, switches);
             device->set_interrupt(&raise_pending_signal);
             return device;
           }),
           py::arg("name"), py::kw_only(), py::arg("fused") = true, py::arg("activations") = "int15",
           py::arg("isa") = "auto", py::arg("threads") = 0, py::arg("spin_us") = 50, py::arg("cpu_fetch_ahead") = true,
           py::arg("chunked_delta") = true, py::arg("run_ahead") = true, py::arg("metal_resident") = true,
           py::arg("metal_matmul") = true, py::arg("metal_tensor_ops") = true, py::arg("metal_statistics") = true,
           py::arg("metal_split_matmul") = true, py::arg("metal_sorted_experts") = true,
           py::arg("metal_simdgroup_attention") = true, py::arg("metal_command_macs") = 0, py::arg("kernel_cache") = "")
      .def_property_readonly("name", &Device::name)
      .def_property_readonly("description", &Device::description)
      .def("kernel_times",
           [](const Device& d) {
             py::list out;
             for (const KernelTime& t : d.kernel_times()) out.append(py::make_tuple(t.kernel, t.runs, t.seconds));
             return out;
           })
      .def("memory", [](const Device& d) {
        const DeviceMemory memory = d.memory();
        py::dict out;
        out["footprint"] = memory.footprint;
        out["allocated"] = memory.allocated;
        out["recommended"] = memory.recommended;
        return out;
      });
  m.def("metal_available", &metal_available);
  m.def("compile_metal_kernels", [] {
    std::vector<CompiledKernels> compiled;
    {
      const ReleasedGil released;
      compiled = compile_metal_kernels();
    }
    py::list out;
    for (const CompiledKernels& k : compiled) out.append(py::make_tuple(k.family, k.seconds, k.functions, k.error));
    return out;
  });
  m.def("instruction_sets", [] {
    std::vector<std::string> names;
    for (const cpu::Isa isa : cpu::available()) names.emplace_back(cpu::name_of(isa));
    return names;
  });
  m.def("usable_cores", &usable_cores);
  m.def("trim_heap", &trim_heap);
}

}  // namespace saragossa
