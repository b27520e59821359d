// The state of sequences without a model: one gated delta net, no keys. And both caches where memory grows.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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

/// The memory of another device, on one that has no lazy memory and may fail.
class FailingDevice : public Device {
 public:
  explicit FailingDevice(std::shared_ptr<Device> on) : Device(on->switches()), on_(std::move(on)) {}
  std::string name() const override { return on_->name(); }
  std::string description() const override { return on_->description(); }
  std::shared_ptr<Buffer> allocate(int64_t bytes, bool sparse) override {
    check_fails(allocations_fail);
    return on_->allocate(bytes, sparse);
  }
  std::shared_ptr<Buffer> map(std::shared_ptr<MappedFile> file, int64_t offset, int64_t bytes) override {
    return on_->map(std::move(file), offset, bytes);
  }
  std::unique_ptr<CommandEncoder> begin() override { return on_->begin(); }
  bool lazy_memory() const override { return false; }
  void wait_idle() override { check_fails(waits_fail); }

  bool allocations_fail = false, waits_fail = false;

 private:
  static void check_fails(bool fails) {
    if (fails) fail(ErrorKind::device, "the device fails");
  }
  std::shared_ptr<Device> on_;
};

/// Blocks or slots, with one number written to each row of each tensor.
struct GrowingCaches {
  explicit GrowingCaches(std::shared_ptr<Device> on)
      : device(std::move(on)),
        kv(device, {{1, 4}, {2, 4}}, 64, 256, DType::f32),
        recurrent(device, {RecurrentLayerSpec{{1, 1, 4, 4}, 2}}, 12) {}

  std::vector<Tensor> tensors(bool blocks) const {
    if (blocks) return {kv.layer(0).k, kv.layer(0).v, kv.layer(1).k, kv.layer(1).v};
    return {recurrent.layer(0).conv, recurrent.layer(0).delta};
  }
  void write(bool blocks, int64_t place, float value) const {
    for (const Tensor& t : tensors(blocks)) {
      const Tensor row = t.slice(place, 1);
      std::fill_n(host_data<float>(row), row.numel(), value);
    }
  }
  bool holds(bool blocks, int64_t place, float value) const {
    for (const Tensor& t : tensors(blocks)) {
      const Tensor row = t.slice(place, 1);
      const float* values = host_data<float>(row);
      if (std::any_of(values, values + row.numel(), [&](float v) { return v != value; })) return false;
    }
    return true;
  }

  FailingDevice device;
  KvCache kv;
  RecurrentCache recurrent;
};

}  // namespace

void register_state(py::module_& m) {
  py::class_<Cache, std::shared_ptr<Cache>>(m, "RecurrentOnlyCache")
      .def(py::init<std::shared_ptr<Device>, int64_t>(), py::arg("device"), py::arg("slots") = CacheOptions{}.slots)
      .def_property_readonly("free_slots", [](const Cache& c) { return c.cache.recurrent().free_slots(); });
  py::class_<GrowingCaches, std::shared_ptr<GrowingCaches>>(m, "GrowingCaches")
      .def(py::init<std::shared_ptr<Device>>(), py::arg("device"))
      .def("fail", [](GrowingCaches& c, bool allocations,
                      bool waits) { c.device.allocations_fail = allocations, c.device.waits_fail = waits; })
      .def("take", [](GrowingCaches& c, bool blocks) { return blocks ? c.kv.take() : c.recurrent.take(); })
      .def("copy", [](GrowingCaches& c, int32_t block) { return c.kv.copy(block); })
      .def("release",
           [](GrowingCaches& c, bool blocks, int32_t at) { blocks ? c.kv.release(at) : c.recurrent.release(at); })
      .def("write", &GrowingCaches::write)
      .def("holds", &GrowingCaches::holds)
      .def("free",
           [](const GrowingCaches& c, bool blocks) { return blocks ? c.kv.free_blocks() : c.recurrent.free_slots(); })
      .def("allocated", [](const GrowingCaches& c, bool blocks) {
        return blocks ? c.kv.allocated_blocks() : c.recurrent.allocated_slots();
      });
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
