// The loop that stays on the device: steps, those that run ahead, and what becomes of them.

#include <algorithm>
#include <utility>

#include "runtime/session.h"

namespace saragossa {
namespace {

std::span<const float> floats_of(const Tensor& t) { return {host_data<float>(t), static_cast<size_t>(t.numel())}; }

}  // namespace

void Session::RunningStep::wait() const {
  done.wait();
  forward.wait();  // over by now; it says whether it failed
}

bool Session::may_run_ahead(std::span<const int32_t> rows) const {
  const Device& device = *model_->device;
  if (!device.asynchronous() || !device.switches().run_ahead) return false;
  // The step after the next needs a place in the context.
  return std::all_of(rows.begin(), rows.end(), [&](int row) { return at(row).state.length() + 2 <= context_; });
}

bool Session::guided(std::span<const int32_t> rows) const {
  return std::any_of(rows.begin(), rows.end(), [&](int row) { return at(row).masked; });
}

Session::RunningStep Session::start_step(std::span<const int32_t> rows, int64_t ahead) {
  const auto n = static_cast<int64_t>(rows.size());
  for (const int32_t row : rows) at(row).state.reserve(ahead + 1);
  Batch b;
  if (ahead == 0 && !std::equal(rows.begin(), rows.end(), stepping_.begin(), stepping_.end())) {
    std::vector<int32_t> tokens;
    for (const int32_t row : rows) tokens.push_back(at(row).drawn.id);
    b = batches(tokens, rows).front();
    stepping_.clear();
    ids_ = b.ids;
    positions_ = b.positions;
    sequence_ = b.sequence;
  } else {
    // ids and positions are on the device already: the last step's draw and advance put them there.
    b.ids = ids_;
    b.positions = positions_;
    b.sequence = sequence_;
    b.block_table = block_tables_.front();
    b.runs.assign(rows.size(), 1);
    for (const int32_t row : rows) {
      const Row& r = at(row);
      b.max_keys = std::max(b.max_keys, r.state.length() + ahead + 1);
      for (size_t g = 0; g < block_tables_.size(); ++g) {
        const std::vector<int32_t>& blocks = r.state.blocks(g);
        block_table(g, row)[blocks.size() - 1] = blocks.back();
      }
    }
  }
  // A step that runs ahead may be dropped: what it starts from stays.
  advance_states(b, rows, KeepStates::last, !model_->device->asynchronous());
  RunningStep step{{rows.begin(), rows.end()}, std::exchange(next_draws_, 1 - next_draws_), of_groups(b), {}, {}, {}};
  auto enc = model_->device->begin();
  const Decoder::Output out =
      model_->decoder->forward(*enc, step.batches, *model_->cache, identity_.slice(0, n), has_head());
  const Tensor& logits = out.logits;
  if (has_head()) enc->copy(draws_[step.draws].states.slice(0, n), out.every);
  const bool draw_later = ahead > 0 && guided(rows);
  if (!draw_later) encode_end(*enc, step, logits);
  stepping_.clear();  // until the step is done, what the device holds is not to be trusted
  if (draw_later) {
    step.forward = enc->submit();
    step.logits = logits;
  } else {
    step.done = enc->submit();
  }
  return step;
}

void Session::encode_end(CommandEncoder& enc, const RunningStep& step, const Tensor& logits) {
  const Draws& draws = draws_[step.draws];
  encode_draws(enc, logits, step.rows, step.batches[0].sequence, draws);
  enc.advance(step.batches[0], draws.ids.slice(0, logits.shape[0]));
}

void Session::start_draw(RunningStep& step) {
  auto enc = model_->device->begin();
  encode_end(*enc, step, step.logits);
  step.done = enc->submit();
}

void Session::step(std::span<const int32_t> rows) {
  const ModelLock lock(*model_);
  if (rows.empty()) return;
  close_verified();
  for (const int32_t row : rows) {
    const Row& r = at(row);
    if (!r.has_drawn) fail(ErrorKind::usage, "session: row ", row, " has no drawn token to go on from");
    if (std::count(rows.begin(), rows.end(), row) > 1) fail(ErrorKind::usage, "session: row ", row, " twice in a step");
    check_tokens(r, std::span(&r.drawn.id, 1));
  }
  if (ahead_ && !std::equal(rows.begin(), rows.end(), ahead_->rows.begin(), ahead_->rows.end())) settle();
  std::optional<RunningStep> step;
  try {
    step = ahead_ ? std::exchange(ahead_, std::nullopt) : start_step(rows, 0);
    if (step->logits) start_draw(*step);
    if (may_run_ahead(rows)) {
      try {
        ahead_ = start_step(rows, 1);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::context) throw;
        // No place for a token that nobody has asked for yet: its turn may still come.
        for (const int32_t row : rows) at(row).state.cancel(1);
      }
    }
    step->wait();
  } catch (...) {  // the rows stand where they stood
    settle();
    const bool ran = step.has_value();
    step.reset();  // waits for what runs of it, the draw first: it reads the forward's scratch
    stepping_.clear();
    for (const int32_t row : rows) {
      if (ran)
        at(row).state.lose();
      else
        at(row).state.cancel();
      sync(row);
    }
    throw;
  }
  if (!ahead_) stepping_.assign(rows.begin(), rows.end());
  for (const int32_t row : rows) {
    Row& r = at(row);
    committed(r, std::span(&r.drawn.id, 1), true);
  }
  bool drawn = true;
  const Draws& draws = draws_[step->draws];
  for (size_t i = 0; i < rows.size(); ++i) {
    if (has_head()) at(rows[i]).tail.append(floats_of(draws.states.slice(static_cast<int64_t>(i), 1)));
    drawn &= read_draw(rows[i], draws, static_cast<int64_t>(i));
  }
  if (!drawn) fail_draw();
  if (has_head())
    for (const int32_t row : rows) catch_up(row);
}

void Session::settle() {
  close_verified();
  if (!ahead_) return;
  const RunningStep step = std::move(*ahead_);
  ahead_.reset();
  stepping_.clear();
  try {
    step.wait();
  } catch (const Error&) {  // nobody wanted what it made
  }
  for (const int32_t row : step.rows) {
    at(row).state.cancel();
    sync(row);
  }
}

}  // namespace saragossa
