#include <pybind11/stl.h>

#include <tuple>

#include "python/bindings.h"
#include "runtime/model.h"
#include "state/sequence_state.h"

namespace saragossa {

void bind_model(py::module_& m) {
  m.attr("BLOCK_TOKENS") = CacheOptions{}.block_tokens;
  m.attr("SEQUENCE_MARKS") = SequenceState::kMarks;
  py::class_<Model, std::shared_ptr<Model>>(m, "Model", py::module_local())
      .def(py::init([](std::shared_ptr<Device> device, const py::object& spec, const py::object& tensors,
                       int64_t blocks, int64_t block_tokens, const std::string& kv_dtype, int64_t slots) {
             const DType dtype = kv_dtype == "f32" ? DType::f32 : kv_dtype == "u8" ? DType::u8 : DType::bf16;
             if (kv_dtype != name_of(dtype))
               fail(ErrorKind::usage, "KV cache in '", kv_dtype, "', supported are bf16, u8, f32");
             DecoderSpec decoder = decoder_spec_from(spec);
             std::vector<BoundTensor> bound = bound_tensors_from(tensors);
             const CacheOptions cache{blocks, block_tokens, dtype, slots};
             const ReleasedGil released;
             return std::make_shared<Model>(std::move(device), std::move(bound), std::move(decoder), cache);
           }),
           py::arg("device"), py::arg("spec"), py::arg("tensors"), py::kw_only(), py::arg("blocks"),
           py::arg("block_tokens") = CacheOptions{}.block_tokens, py::arg("kv_dtype") = "bf16",
           py::arg("slots") = CacheOptions{}.slots)
      .def_property_readonly("free_blocks", [](const Model& model) { return model.cache->group(0).free_blocks(); })
      .def_property_readonly("allocated_blocks",
                             [](const Model& model) { return model.cache->group(0).allocated_blocks(); })
      .def_property_readonly("cache_groups",
                             [](const Model& model) {  // window (0: all), blocks: allocated, free
                               std::vector<std::tuple<int64_t, int64_t, int64_t>> groups;
                               for (size_t g = 0; g < model.cache->groups(); ++g) {
                                 const KvCache& kv = model.cache->group(g);
                                 groups.emplace_back(model.cache->window(g), kv.allocated_blocks(), kv.free_blocks());
                               }
                               return groups;
                             })
      .def_property_readonly("free_slots", [](const Model& model) { return model.cache->recurrent().free_slots(); })
      .def_property_readonly("state_bytes",
                             [](const Model& model) { return model.cache->recurrent().bytes_per_slot(); })
      .def_property_readonly("kv_bytes_per_token", [](const Model& model) { return model.cache->bytes_per_token(); });
}

}  // namespace saragossa
