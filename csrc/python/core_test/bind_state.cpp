// The state of sequences without a model: one gated delta net, no keys.

#include <memory>
#include <utility>

#include "python/core_test/core_test.h"
#include "state/sequence_state.h"

namespace saragossa {
namespace {

struct Cache {
  Cache(std::shared_ptr<Device> on, int64_t slots)
      : device(std::move(on)),
        cache(*device, {CacheLayer{{}, 0, {}, RecurrentLayerSpec{{1, 1, 4, 4}, 2}}},
              CacheOptions{8, 64, DType::bf16, slots}) {}
  std::shared_ptr<Device> device;
  ModelCache cache;
};

}  // namespace

void register_state(py::module_& m) {
  py::class_<Cache, std::shared_ptr<Cache>>(m, "RecurrentOnlyCache")
      .def(py::init<std::shared_ptr<Device>, int64_t>(), py::arg("device"), py::arg("slots") = CacheOptions{}.slots)
      .def_property_readonly("free_slots", [](const Cache& c) { return c.cache.recurrent().free_slots(); });
  py::class_<SequenceState>(m, "SequenceState")
      .def(py::init([](const std::shared_ptr<Cache>& c) { return SequenceState(c->cache); }), py::arg("cache"),
           py::keep_alive<1, 2>())
      .def_property_readonly("length", &SequenceState::length)
      .def(
          "advance",
          [](SequenceState& s, int64_t rows, bool in_place) {
            s.reserve(rows);
            const SequenceState::Slots slots = s.advance(rows, KeepStates::last, in_place);
            return std::pair(slots.in, slots.out.back());
          },
          py::arg("rows"), py::arg("in_place"))
      .def("commit", &SequenceState::commit, py::arg("tokens"))
      .def("cancel", [](SequenceState& s) { s.cancel(); })
      .def("lose", &SequenceState::lose)
      .def("mark", &SequenceState::mark)
      .def("pin", &SequenceState::pin)
      .def("unpin", &SequenceState::unpin)
      .def("rewindable", &SequenceState::rewindable, py::arg("to"))
      .def("rewind", &SequenceState::rewind, py::arg("to"))
      .def("share", &SequenceState::share, py::arg("source"));
}

}  // namespace saragossa
