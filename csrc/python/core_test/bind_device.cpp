// Device, Buffer, Tensor, Weight, Submission.

#include "device.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstring>

#include "core/mapped_file.h"
#include "cpu/isa.h"
#include "encoder.h"
#include "params/sample.h"
#include "python/core_test/core_test.h"
#include "quant/weight.h"

namespace saragossa {
namespace {

DType dtype_from(const std::string& name) {
  for (const DType t : {DType::f32, DType::f16, DType::bf16, DType::i32, DType::u32, DType::u8})
    if (name == name_of(t)) return t;
  fail(ErrorKind::usage, "dtype '", name, "' is unknown");
}

/// bf16 is seen as uint16.
py::dtype numpy_dtype(DType t) {
  switch (t) {
    case DType::f32: return py::dtype("float32");
    case DType::f16: return py::dtype("float16");
    case DType::bf16: return py::dtype("uint16");
    case DType::i32: return py::dtype("int32");
    case DType::u32: return py::dtype("uint32");
    case DType::u8: return py::dtype("uint8");
  }
  return py::dtype("uint8");
}

Shape shape_from(const std::vector<int64_t>& dims) {
  switch (dims.size()) {
    case 0: return {};
    case 1: return {dims[0]};
    case 2: return {dims[0], dims[1]};
    case 3: return {dims[0], dims[1], dims[2]};
    case 4: return {dims[0], dims[1], dims[2], dims[3]};
    default: fail(ErrorKind::usage, "tensor: ", dims.size(), " dimensions");
  }
}

std::vector<int64_t> dims_of(const Tensor& t) {
  std::vector<int64_t> dims;
  for (int i = 0; i < t.shape.rank(); ++i) dims.push_back(t.shape[i]);
  return dims;
}

Tensor upload_array(Device& device, const py::array& array, const std::string& dtype) {
  const DType t = dtype_from(dtype);
  const py::array dense = py::array::ensure(array, py::array::c_style);
  if (!dense.dtype().is(numpy_dtype(t)) && dense.dtype().num() != numpy_dtype(t).num())
    fail(ErrorKind::usage, "tensor: the array's dtype does not fit ", dtype);
  Tensor out = device.tensor(t, shape_from({dense.shape(), dense.shape() + dense.ndim()}));
  std::memcpy(out.buffer->host(), dense.data(), static_cast<size_t>(out.nbytes()));
  return out;
}

/// A copy; refused like every host read while a submission that writes the buffer is pending.
py::array download(const Tensor& t) {
  const uint8_t* bytes = t.buffer->host() + t.offset;
  return py::array(numpy_dtype(t.dtype), dims_of(t), bytes);
}

}  // namespace

void register_device(py::module_& m) {
  py::class_<Tensor>(m, "Tensor")
      .def(py::init<>())
      .def("numpy", &download)
      .def("slice", &Tensor::slice)
      .def("reshape", [](const Tensor& t, const std::vector<int64_t>& dims) { return t.reshape(shape_from(dims)); })
      .def_property_readonly("shape", &dims_of)
      .def_property_readonly("dtype", [](const Tensor& t) { return name_of(t.dtype); })
      .def_property_readonly("address", [](const Tensor& t) {
        return reinterpret_cast<uintptr_t>(t.buffer->raw()) + static_cast<uintptr_t>(t.offset);
      });

  py::class_<Weight>(m, "Weight")
      .def(py::init([](int64_t out, int64_t in, const Tensor& data, int bits, int group, const Tensor& scales,
                       const Tensor& biases, const std::string& format) {
             return Weight{out, in, bits, group, data, scales, biases, format_named(format)};
           }),
           py::arg("out"), py::arg("in"), py::arg("data"), py::kw_only(), py::arg("bits") = 0, py::arg("group") = 0,
           py::arg("scales") = Tensor{}, py::arg("biases") = Tensor{}, py::arg("format") = "affine");

  py::class_<Submission>(m, "Submission").def("wait", &Submission::wait, py::call_guard<py::gil_scoped_release>());

  py::class_<Device, std::shared_ptr<Device>>(m, "Device")
      .def(py::init([](const std::string& name, const std::string& isa, const std::string& activations, bool fused,
                       int threads, bool poison, bool cpu_fetch_ahead, bool chunked_delta, bool metal_matmul,
                       bool metal_tensor_ops, bool metal_statistics, bool metal_split_matmul, bool metal_sorted_experts,
                       bool metal_simdgroup_attention, int64_t metal_command_macs) {
             Switches s;
             s.isa = isa;
             s.activations = activations == "f32"    ? Activations::f32
                             : activations == "int8" ? Activations::int8
                                                     : Activations::int15;
             s.fused = fused;
             s.threads = threads;
             s.poison_scratch = poison;
             s.cpu_fetch_ahead = cpu_fetch_ahead;
             s.chunked_delta = chunked_delta;
             s.metal_matmul = metal_matmul;
             s.metal_tensor_ops = metal_tensor_ops;
             s.metal_statistics = metal_statistics;
             s.metal_split_matmul = metal_split_matmul;
             s.metal_sorted_experts = metal_sorted_experts;
             s.metal_simdgroup_attention = metal_simdgroup_attention;
             s.metal_command_macs = metal_command_macs;
             return std::shared_ptr<Device>(make_device(name, s));
           }),
           py::arg("name") = "cpu", py::kw_only(), py::arg("isa") = "auto", py::arg("activations") = "int15",
           py::arg("fused") = true, py::arg("threads") = 0, py::arg("poison") = true, py::arg("cpu_fetch_ahead") = true,
           py::arg("chunked_delta") = true, py::arg("metal_matmul") = true, py::arg("metal_tensor_ops") = true,
           py::arg("metal_statistics") = true, py::arg("metal_split_matmul") = true,
           py::arg("metal_sorted_experts") = true, py::arg("metal_simdgroup_attention") = true,
           py::arg("metal_command_macs") = 0)
      .def_property_readonly("name", &Device::name)
      .def_property_readonly("description", &Device::description)
      .def("tensor", &upload_array, py::arg("array"), py::arg("dtype"))
      .def("zeros", [](Device& d, const std::string& dtype,
                       const std::vector<int64_t>& dims) { return d.tensor(dtype_from(dtype), shape_from(dims)); })
      .def("map",
           [](Device& d, const std::string& path, int64_t offset, const std::string& dtype,
              const std::vector<int64_t>& dims) {
             const Shape shape = shape_from(dims);
             auto file = std::make_shared<MappedFile>(path);
             return Tensor{d.map(std::move(file), offset, shape.numel() * size_of(dtype_from(dtype))), 0,
                           dtype_from(dtype), shape};
           })
      .def("begin", &Device::begin, py::keep_alive<0, 1>());

  m.def("instruction_sets", [] {
    std::vector<std::string> names;
    for (const cpu::Isa isa : cpu::available()) names.emplace_back(cpu::name_of(isa));
    return names;
  });
  m.def(
      "sample_params",
      [](float temperature, float top_p, float min_p, float repetition, float presence, float frequency, int top_k,
         uint64_t seed, uint32_t step, int n_bias, int top_logprobs) {
        const SampleParams p{temperature,
                             top_p,
                             min_p,
                             repetition,
                             presence,
                             frequency,
                             top_k,
                             static_cast<uint32_t>(seed),
                             static_cast<uint32_t>(seed >> 32),
                             step,
                             n_bias,
                             top_logprobs};
        return py::array_t<uint8_t>(sizeof p, reinterpret_cast<const uint8_t*>(&p));
      },
      "The bytes of one SampleParams.", py::kw_only(), py::arg("temperature") = 0.0f, py::arg("top_p") = 1.0f,
      py::arg("min_p") = 0.0f, py::arg("repetition") = 1.0f, py::arg("presence") = 0.0f, py::arg("frequency") = 0.0f,
      py::arg("top_k") = 0, py::arg("seed") = 0, py::arg("step") = 0, py::arg("n_bias") = 0,
      py::arg("top_logprobs") = -1);
}

}  // namespace saragossa
