// Several steps at once: drafts that are verified.
//
// Row i of the run stands for the step that draws behind the i-th draft. It draws with that step's noise, and with the
// counts that the drafts in front of it leave, so where those are right it draws what the step would draw.

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/session.h"

namespace saragossa {

SampleArgs Session::args_ahead(int row, const Tensor& logits, int64_t first) {
  Row& r = at(row);
  Device& device = *model_->device;
  const int64_t n = logits.shape[0];
  Verification& v = verification_;
  if (!v.params) {
    v.params = device.tensor(DType::u8, {kMostDrafts + 1, static_cast<int64_t>(sizeof(SampleParams))});
    v.draws = make_draws(kMostDrafts + 1);
  }
  SampleArgs args;
  args.logits = logits;
  args.params = v.params.slice(first, n);
  args.ids = v.draws.ids.slice(first, n);
  args.filtered = r.sampling.filtered();
  SampleParams params = r.sampling.params;
  for (int64_t i = first; i < first + n; ++i) {
    params.step = r.sampling.params.step + r.draws + static_cast<uint32_t>(i);
    std::memcpy(host_data<uint8_t>(v.params.slice(i, 1)), &params, sizeof(params));
  }
  const auto entries = static_cast<int64_t>(r.sampling.bias.size());
  if (entries == 0) return args;
  args.bias_ids = device.tensor(DType::i32, {n, entries});
  args.bias = device.tensor(DType::f32, {n, entries});
  int32_t* ids = host_data<int32_t>(args.bias_ids);
  float* values = host_data<float>(args.bias);
  for (int64_t i = 0; i < n; ++i)
    for (const auto& [id, value] : r.sampling.bias) *ids++ = id, *values++ = value;
  return args;
}

std::vector<Drawn> Session::verify(int row, std::span<const int32_t> drafts) {
  const ModelLock lock(*model_);
  Row& r = at(row);
  if (!r.has_drawn) fail(ErrorKind::usage, "session: row ", row, " has no drawn token to go on from");
  if (static_cast<int64_t>(drafts.size()) > kMostDrafts)
    fail(ErrorKind::usage, drafts.size(), " drafts, ", kMostDrafts, " are verified at once");
  settle();
  if (has_head()) catch_up(row);  // each verification leaves states
  if (r.masked) drafts = {};      // the mask stands for one draw
  try {
    return run_verify(row, drafts);
  } catch (const Error& error) {
    // No place for so many states or tokens; a plain step needs less.
    if (drafts.empty() || error.kind() != ErrorKind::context) throw;
    return run_verify(row, {});
  }
}

std::vector<Drawn> Session::run_verify(int row, std::span<const int32_t> drafts) {
  Row& r = at(row);
  std::vector<int32_t> run{r.drawn.id};
  run.insert(run.end(), drafts.begin(), drafts.end());
  check_tokens(r, run);
  const auto n = static_cast<int64_t>(run.size());
  stepping_.clear();
  Verified verified;
  std::vector<Drawn> drawn;
  try {
    auto enc = model_->device->begin();
    r.state.reserve(n, r.state.length(), drafts.empty() ? Marks::all : Marks::own);
    std::vector<Batch> step = batches(run, std::vector<int32_t>(run.size(), row));
    advance_states(step.front(), std::span(&row, 1), KeepStates::each, false);
    step = of_groups(step.front());
    const Decoder::Output out = model_->decoder->forward(*enc, step, *model_->cache, identity_.slice(0, n), has_head());
    SampleArgs args = args_ahead(row, out.logits, 0);
    if (has_head()) enc->copy(verification_.draws.states.slice(0, n), out.every);
    if (r.sampling.penalties()) {
      const int64_t vocab = out.logits.shape[1];
      if (!verification_.counts) verification_.counts = model_->device->tensor(DType::u32, {kMostDrafts + 1, vocab});
      args.counts = verification_.counts.slice(0, n);
      uint32_t* to = host_data<uint32_t>(args.counts);
      std::copy_n(host_data<uint32_t>(counts_.slice(row, 1)), vocab, to);
      for (const int32_t draft : drafts) {
        std::copy_n(to, vocab, to + vocab);
        ++(to += vocab)[draft];
      }
    }
    if (r.masked) args.mask = masks_.slice(row, 1);
    if (r.sampling.params.top_logprobs >= 0) {
      args.logprobs = verification_.draws.logprobs.slice(0, n);
      args.logprob_ids = verification_.draws.logprob_ids.slice(0, n);
    }
    enc->sample(args);
    enc->submit().wait();
    verified = read_verified(std::move(run), r.sampling.params.top_logprobs);
    drawn = verified.drawn;
  } catch (...) {
    r.state.cancel();
    throw;
  }
  r.verified = std::move(verified);
  r.untaken = r.verified->size();
  if (drawn.front().id < 0) {
    close(row, 1);
    fail_draw();
  }
  return drawn;
}

Session::Verified Session::read_verified(std::vector<int32_t> run, int32_t top_logprobs) const {
  Verified out;
  const auto drawn = [&](int64_t i) { return drawn_of(verification_.draws, i, top_logprobs); };
  out.drawn.push_back(drawn(0));
  // A draft that is right goes on only where something could be drawn behind it: the step that fails says so itself.
  for (size_t i = 1; i < run.size() && run[i] == out.drawn.back().id; ++i) {
    Drawn next = drawn(static_cast<int64_t>(i));
    if (next.id < 0) break;
    out.drawn.push_back(std::move(next));
  }
  run.resize(out.drawn.size());
  out.run = std::move(run);
  if (has_head()) {
    const float* states = host_data<float>(verification_.draws.states);
    out.states.assign(states, states + out.size() * state_width());
  }
  return out;
}

const Drawn& Session::take(int row) {
  Row& r = at(row);
  if (r.untaken == 0) fail(ErrorKind::usage, "session: row ", row, " has no drawn token that was not taken");
  r.taken = r.verified ? r.verified->drawn[static_cast<size_t>(r.verified->size() - r.untaken)] : r.drawn;
  --r.untaken;
  return *r.taken;
}

void Session::forget_untaken(int row) {
  const ModelLock lock(*model_);
  Row& r = at(row);
  if (!r.verified) return;
  const int64_t taken = r.verified->size() - r.untaken;
  if (taken > 0) return close(row, taken);
  r.verified.reset();
  r.state.cancel();
  r.untaken = 0;  // the drawn token that it began from was
}

void Session::keep(int row, int64_t count) {
  const ModelLock lock(*model_);
  const std::optional<Verified>& verified = at(row).verified;
  if (!verified || count < 1 || count > static_cast<int64_t>(verified->run.size()))
    fail(ErrorKind::usage, "session: row ", row, " has no ", count, " verified tokens that are not kept yet");
  close(row, count);
}

void Session::close(int row, int64_t count) {
  Row& r = at(row);
  const Verified verified = *std::exchange(r.verified, std::nullopt);
  committed(r, std::span(verified.run).first(static_cast<size_t>(count)), true);
  r.state.cancel();  // what was reserved for refused drafts
  if (has_head()) r.tail.append(std::span(verified.states).first(static_cast<size_t>(count * state_width())));
  r.draws += static_cast<uint32_t>(count);
  r.drawn = verified.drawn[static_cast<size_t>(count - 1)];
  r.has_drawn = r.drawn.id >= 0;
  r.untaken = r.has_drawn && verified.size() - r.untaken < count ? 1 : 0;
  sync(row);
}

void Session::close_verified() {
  for (int row = 0; row < rows(); ++row)
    if (const auto& verified = at(row).verified) close(row, static_cast<int64_t>(verified->run.size()));
}

RowView Session::view(int row) {
  const ModelLock lock(*model_);
  close_verified();
  const Row& r = at(row);
  if (!r.has_drawn) fail(ErrorKind::usage, "session: row ", row, " has no drawn token to go on from");
  return {r.tokens, r.generated, r.drawn, r.sampling, r.draws};
}

void Session::follow(int row, const RowView& from) {
  const ModelLock lock(*model_);
  Row& r = at(row);
  if (r.tokens != from.tokens)
    fail(ErrorKind::usage, "session: row ", row, " has other tokens than the one it follows");
  Sampling sampling = from.sampling;
  sampling.params.top_logprobs = -1;
  configure_locked(row, sampling);
  r.generated = from.generated;
  r.draws = from.draws;
  r.drawn = {from.drawn.id, {}};
  r.has_drawn = true;
  r.untaken = 0;
  stepping_.clear();
  sync(row);
}

std::vector<int32_t> Session::tokens(int row) {
  const ModelLock lock(*model_);
  close_verified();
  return at(row).tokens;
}

}  // namespace saragossa
