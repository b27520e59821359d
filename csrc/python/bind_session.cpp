#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "python/bindings.h"
#include "runtime/session.h"

namespace saragossa {
namespace {

using Ids = std::vector<int32_t>;

py::tuple to_tuple(const Drawn& drawn) { return py::make_tuple(drawn.id, drawn.logprobs); }

py::array_t<float> to_array(const std::vector<float>& values, int64_t rows) {
  const auto n = static_cast<py::ssize_t>(values.size());
  py::array_t<float> out({static_cast<py::ssize_t>(rows), rows ? n / rows : 0});
  std::copy(values.begin(), values.end(), out.mutable_data());
  return out;
}

void configure(Session& session, int row, float temperature, int top_k, float top_p, float min_p,
               float repetition_penalty, float presence_penalty, float frequency_penalty, uint64_t seed,
               int top_logprobs, const std::vector<std::pair<int32_t, float>>& bias) {
  Sampling s;
  s.params.temperature = temperature;
  s.params.top_k = top_k;
  s.params.top_p = top_p;
  s.params.min_p = min_p;
  s.params.repetition_penalty = repetition_penalty;
  s.params.presence_penalty = presence_penalty;
  s.params.frequency_penalty = frequency_penalty;
  s.params.seed_lo = static_cast<uint32_t>(seed);
  s.params.seed_hi = static_cast<uint32_t>(seed >> 32);
  if (top_logprobs < -1 || top_logprobs > 20)
    fail(ErrorKind::parameter, "top_logprobs ", top_logprobs, ", expected 0 to 20");
  s.params.top_logprobs = top_logprobs;
  s.bias = bias;
  const ReleasedGil released;
  session.configure(row, s);
}

}  // namespace

void bind_session(py::module_& m) {
  // Whatever waits for the model's mutex lets go of the GIL first: its holder may ask for the GIL.
  using Release = py::call_guard<ReleasedGil>;
  // Held without const, which pybind11 has no holder for; nothing of it can be changed.
  py::class_<Snapshot, std::shared_ptr<Snapshot>>(m, "Snapshot", py::module_local())
      .def_property_readonly("length", &Snapshot::length)
      .def_property_readonly("tokens", &Snapshot::tokens);
  py::class_<Session>(m, "Session", py::module_local())
      .def(py::init<std::shared_ptr<Model>, int, int64_t>(), py::arg("model"), py::arg("rows"), py::arg("context"))
      .def_property_readonly("rows", &Session::rows)
      .def_property_readonly("context", &Session::context)
      .def("length", &Session::length, py::arg("row"))
      .def("configure", &configure, py::arg("row"), py::kw_only(), py::arg("temperature") = 0.0f, py::arg("top_k") = 0,
           py::arg("top_p") = 1.0f, py::arg("min_p") = 0.0f, py::arg("repetition_penalty") = 1.0f,
           py::arg("presence_penalty") = 0.0f, py::arg("frequency_penalty") = 0.0f, py::arg("seed") = 0,
           py::arg("top_logprobs") = -1, py::arg("bias") = std::vector<std::pair<int32_t, float>>{})
      .def(
          "set_mask", [](Session& s, int row, const std::vector<uint32_t>& mask) { s.set_mask(row, mask); },
          py::arg("row"), py::arg("mask"), Release())
      .def(
          "prefill", [](Session& s, int row, const Ids& tokens, bool draw) { s.prefill(row, tokens, draw); },
          py::arg("row"), py::arg("tokens"), py::arg("draw"), Release())
      .def(
          "step", [](Session& s, const Ids& rows) { s.step(rows); }, py::arg("rows"), Release())
      .def(
          "drawn", [](const Session& s, int row) { return to_tuple(s.drawn(row)); }, py::arg("row"))
      .def("untaken", &Session::untaken, py::arg("row"))
      .def(
          "take", [](Session& s, int row) { return to_tuple(s.take(row)); }, py::arg("row"))
      .def(
          "taken",
          [](const Session& s, int row) -> std::optional<py::tuple> {
            if (const auto& taken = s.taken(row)) return to_tuple(*taken);
            return std::nullopt;
          },
          py::arg("row"))
      .def("forget_untaken", &Session::forget_untaken, py::arg("row"), Release())
      .def(
          "verify",
          [](Session& s, int row, const Ids& drafts) {
            std::vector<Drawn> drawn;
            {
              const ReleasedGil released;
              drawn = s.verify(row, drafts);
            }
            py::list out;
            for (const Drawn& d : drawn) out.append(to_tuple(d));
            return out;
          },
          py::arg("row"), py::arg("drafts"))
      .def("keep", &Session::keep, py::arg("row"), py::arg("count"), Release())
      .def("waiting_states", &Session::waiting_states, py::arg("row"))
      .def("draft_by_mtp", &Session::draft_by_mtp, py::arg("row"), py::arg("count"), Release())
      .def("draft_by_block", &Session::draft_by_block, py::arg("row"), py::arg("count"), Release())
      .def(
          "block_logits",
          [](Session& s, int row, int64_t count) {
            std::vector<float> values;
            {
              const ReleasedGil released;
              values = s.block_logits(row, count);
            }
            return to_array(values, count);
          },
          py::arg("row"), py::arg("count"))
      .def(
          "mtp_logits",
          [](Session& s, int row, const Ids& drafts) {
            std::vector<float> values;
            {
              const ReleasedGil released;
              values = s.mtp_logits(row, drafts);
            }
            return to_array(values, static_cast<int64_t>(drafts.size()) + 1);
          },
          py::arg("row"), py::arg("drafts"))
      .def("mark", &Session::mark, py::arg("row"), py::kw_only(), py::arg("pin") = false, Release())
      .def("unpin", &Session::unpin, py::arg("row"), Release())
      .def("rewindable", &Session::rewindable, py::arg("row"), py::arg("to"), Release())
      .def("rewind", &Session::rewind, py::arg("row"), py::arg("to"), Release())
      .def(
          "snapshot",
          [](Session& session, int row) { return std::const_pointer_cast<Snapshot>(session.snapshot(row)); },
          py::arg("row"), Release())
      .def("restore", &Session::restore, py::arg("row"), py::arg("snapshot"), Release())
      .def(
          "logits",
          [](Session& s, int row, const Ids& tokens) {
            std::vector<float> values;
            {
              const ReleasedGil released;
              values = s.logits(row, tokens);
            }
            return to_array(values, static_cast<int64_t>(tokens.size()));
          },
          py::arg("row"), py::arg("tokens"))
      .def(
          "hidden",
          [](Session& s, int row, const Ids& tokens) {
            std::vector<float> values;
            {
              const ReleasedGil released;
              values = s.hidden(row, tokens);
            }
            return to_array(values, s.layers());
          },
          py::arg("row"), py::arg("tokens"));
}

}  // namespace saragossa
