#include "runtime/session.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace saragossa {
namespace {

constexpr int64_t max_logprobs = 20;  // as OpenAI allows

}  // namespace

NothingDrawn::NothingDrawn()
    : Error(ErrorKind::device, "the model's logits are not finite, or every token is masked: nothing can be drawn") {}

void Session::fail_draw() { throw NothingDrawn(); }

Session::Session(std::shared_ptr<Model> model, int rows, int64_t context)
    : model_(std::move(model)), context_(context) {
  require(rows >= 1, "session: ", rows, " rows");
  Device& device = *model_->device;
  const int64_t n = rows;
  const int64_t vocab = model_->decoder->spec().vocab;
  const int64_t size = model_->cache->block_tokens();
  rows_.reserve(static_cast<size_t>(rows));
  for (int i = 0; i < rows; ++i) rows_.emplace_back(*model_->cache).tail = HiddenTail(block() ? 0 : 1);
  ids_ = device.tensor(DType::i32, {n});
  positions_ = device.tensor(DType::i32, {n});
  sequence_ = device.tensor(DType::i32, {n});
  for (size_t g = 0; g < model_->cache->groups(); ++g)
    block_tables_.push_back(device.tensor(DType::i32, {n, (context + size - 1) / size}));
  if (!model_->cache->recurrent().empty())
    for (StateSlots& slots : slots_) slots = {device.tensor(DType::i32, {n}), device.tensor(DType::i32, {n})};
  params_ = device.tensor(DType::u8, {n, static_cast<int64_t>(sizeof(SampleParams))});
  const int64_t most = std::max(n, kMostDrafts + 1);
  identity_ = device.tensor(DType::i32, {most + 1});
  std::iota(host_data<int32_t>(identity_), host_data<int32_t>(identity_) + most + 1, 0);
  for (Draws& draws : draws_) draws = make_draws(n);
  counts_ = device.tensor(DType::u32, {n, vocab});
  for (int i = 0; i < rows; ++i) configure_locked(i, Sampling{});
}

Session::Draws Session::make_draws(int64_t rows) const {
  Device& device = *model_->device;
  Draws out{device.tensor(DType::i32, {rows}),
            device.tensor(DType::f32, {rows, 1 + max_logprobs}),
            device.tensor(DType::i32, {rows, 1 + max_logprobs}),
            {}};
  if (has_head()) out.states = device.tensor(DType::f32, {rows, state_width()});
  return out;
}

Session::Row& Session::at(int row) {
  if (row < 0 || row >= rows()) fail(ErrorKind::usage, "session: row ", row, " of ", rows());
  return rows_[static_cast<size_t>(row)];
}

void Session::configure(int row, const Sampling& sampling) {
  const ModelLock lock(*model_);
  configure_locked(row, sampling);
}

void Session::configure_locked(int row, const Sampling& sampling) {
  Row& r = at(row);
  const int64_t vocab = model_->decoder->spec().vocab;
  for (const auto& [id, value] : sampling.bias)
    if (id < 0 || id >= vocab)
      fail(ErrorKind::parameter, "logit_bias: token id ", id, " is out of range; the vocabulary has ", vocab);
  settle();
  reserve_bias(static_cast<int64_t>(sampling.bias.size()));
  r.sampling = sampling;
  r.sampling.params.n_bias = static_cast<int32_t>(sampling.bias.size());
  r.draws = 0;
  write_bias(row);
  std::memcpy(host_data<uint8_t>(params_.slice(row, 1)), &r.sampling.params, sizeof(SampleParams));
  // Untouched pages of a fresh session stay untouched.
  if (std::exchange(r.counted, false)) {
    const Tensor counts = counts_.slice(row, 1);
    std::memset(host_data<uint32_t>(counts), 0, static_cast<size_t>(counts.nbytes()));
  }
  r.generated.assign(r.tokens.size(), false);
  sync(row);
}

void Session::reserve_bias(int64_t entries) {
  if (entries <= (bias_ids_ ? bias_ids_.shape[1] : 0)) return;
  const Tensor ids = model_->device->tensor(DType::i32, {rows(), entries});
  const Tensor values = model_->device->tensor(DType::f32, {rows(), entries});
  bias_ids_ = ids;
  bias_ = values;
  for (int i = 0; i < rows(); ++i) write_bias(i);
}

void Session::write_bias(int row) {
  const auto& bias = at(row).sampling.bias;
  if (bias.empty()) return;
  int32_t* ids = host_data<int32_t>(bias_ids_.slice(row, 1));
  float* values = host_data<float>(bias_.slice(row, 1));
  for (const auto& [id, value] : bias) *ids++ = id, *values++ = value;
}

void Session::set_mask(int row, std::span<const uint32_t> mask) {
  const ModelLock lock(*model_);
  Row& r = at(row);
  const int64_t words = (model_->decoder->spec().vocab + 31) / 32;
  if (!mask.empty() && static_cast<int64_t>(mask.size()) != words)
    fail(ErrorKind::usage, "mask of ", mask.size(), " words, the vocabulary takes ", words);
  close_verified();
  if (ahead_ && !ahead_->logits) settle();  // it draws without this mask
  if (mask.empty() && !r.masked) return;
  if (!masks_) {
    masks_ = model_->device->tensor(DType::u32, {rows(), words});
    std::fill_n(host_data<uint32_t>(masks_), masks_.numel(), ~0u);
  }
  uint32_t* to = host_data<uint32_t>(masks_.slice(row, 1));
  if (mask.empty())
    std::fill_n(to, words, ~0u);
  else
    std::copy(mask.begin(), mask.end(), to);
  r.masked = !mask.empty();
}

void Session::check_tokens(const Row& row, std::span<const int32_t> tokens) const {
  const int64_t vocab = model_->decoder->spec().vocab;
  for (const int32_t id : tokens)
    if (id < 0 || id >= vocab)
      fail(ErrorKind::usage, "token id ", id, " is out of range; the vocabulary has ", vocab, " (0 to ", vocab - 1,
           ")");
  const int64_t total = row.state.length() + static_cast<int64_t>(tokens.size());
  if (total > context_) fail(ErrorKind::context, total, " tokens do not fit the context of ", context_);
}

std::vector<Batch> Session::of_groups(const Batch& batch) const {
  std::vector<Batch> out(block_tables_.size(), batch);
  for (size_t g = 0; g < out.size(); ++g) out[g].block_table = block_tables_[g];
  return out;
}

int32_t* Session::block_table(size_t group, int row) {
  const Tensor& tables = block_tables_[group];
  const size_t blocks = at(row).state.blocks(group).size();
  require(static_cast<int64_t>(blocks) <= tables.shape[1], "session: row ", row, " has ", blocks,
          " blocks, its table takes ", tables.shape[1]);
  return host_data<int32_t>(tables.slice(row, 1));
}

void Session::write_block_tables(int row) {
  for (size_t g = 0; g < block_tables_.size(); ++g) {
    const std::vector<int32_t>& blocks = at(row).state.blocks(g);
    std::copy(blocks.begin(), blocks.end(), block_table(g, row));
  }
}

void Session::advance_states(Batch& batch, std::span<const int32_t> rows, KeepStates keep, bool in_place) {
  std::vector<SequenceState::Slots> steps;
  for (size_t r = 0; r < rows.size(); ++r) steps.push_back(at(rows[r]).state.advance(batch.runs[r], keep, in_place));
  if (!slots_[0].in) return;
  Device& device = *model_->device;
  const int64_t tokens = batch.tokens();
  StateSlots& slots = slots_[std::exchange(next_slots_, 1 - next_slots_)];
  batch.state_in = slots.in;
  batch.state_out = tokens <= slots.out.shape[0] ? slots.out.slice(0, tokens) : device.tensor(DType::i32, {tokens});
  batch.run_starts = device.tensor(DType::i32, {static_cast<int64_t>(rows.size()) + 1});
  int32_t* out = host_data<int32_t>(batch.state_out);
  int32_t* starts = host_data<int32_t>(batch.run_starts);
  int32_t row = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    host_data<int32_t>(batch.state_in)[rows[r]] = steps[r].in;
    *starts++ = row;
    out = std::copy(steps[r].out.begin(), steps[r].out.end(), out);
    row += static_cast<int32_t>(batch.runs[r]);
  }
  *starts = row;
}

std::vector<Batch> Session::batches(std::span<const int32_t> tokens, std::span<const int32_t> rows) {
  Device& device = *model_->device;
  std::vector<int32_t> positions(tokens.size());
  std::vector<int64_t> next(rows_.size(), -1);
  Batch out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto row = static_cast<size_t>(rows[i]);
    if (next[row] < 0) {
      next[row] = rows_[row].state.length();
      write_block_tables(rows[i]);
      out.runs.push_back(0);
    }
    ++out.runs.back();
    positions[i] = static_cast<int32_t>(next[row]++);
    out.max_keys = std::max(out.max_keys, next[row]);
  }
  out.ids = upload(device, tokens);
  out.positions = upload(device, positions);
  out.sequence = upload(device, rows);
  return of_groups(out);
}

void Session::encode_draws(CommandEncoder& enc, const Tensor& logits, std::span<const int32_t> rows,
                           const Tensor& sequence, const Draws& draws) {
  const int64_t n = logits.shape[0];
  SampleArgs args;
  args.logits = logits;
  args.rows = sequence;
  args.params = params_;
  args.ids = draws.ids.slice(0, n);
  args.filtered = false;
  // What one row needs is there for all of them: it changes nothing for the others.
  for (const int32_t row : rows) {
    const Row& r = at(row);
    if (r.sampling.penalties()) args.counts = counts_;
    if (!r.sampling.bias.empty()) args.bias_ids = bias_ids_, args.bias = bias_;
    if (r.masked) args.mask = masks_;
    args.filtered |= r.sampling.filtered();
    if (r.sampling.params.top_logprobs < 0) continue;
    args.logprobs = draws.logprobs.slice(0, n);
    args.logprob_ids = draws.logprob_ids.slice(0, n);
  }
  if (args.counts)
    for (const int32_t row : rows) at(row).counted = true;
  enc.sample(args);
}

Drawn Session::drawn_of(const Draws& draws, int64_t i, int32_t top_logprobs) {
  Drawn out;
  out.id = *host_data<int32_t>(draws.ids.slice(i, 1));
  if (out.id < 0) return out;
  const float* values = host_data<float>(draws.logprobs.slice(i, 1));
  const int32_t* ids = host_data<int32_t>(draws.logprob_ids.slice(i, 1));
  for (int32_t j = 0; j <= top_logprobs; ++j) out.logprobs.emplace_back(ids[j], values[j]);
  return out;
}

bool Session::read_draw(int row, const Draws& draws, int64_t i) {
  Row& r = at(row);
  ++r.draws;
  r.drawn = drawn_of(draws, i, r.sampling.params.top_logprobs);
  r.has_drawn = r.drawn.id >= 0;
  r.untaken = r.has_drawn ? 1 : 0;
  return r.has_drawn;
}

void Session::count_prompt(int row, std::span<const int32_t> tokens) {
  uint32_t* counts = host_data<uint32_t>(counts_.slice(row, 1));
  at(row).counted = true;
  for (const int32_t id : tokens) counts[id] |= SG_COUNT_PROMPT;
}

void Session::committed(Row& row, std::span<const int32_t> tokens, bool generated) {
  row.state.commit(static_cast<int64_t>(tokens.size()));
  row.tokens.insert(row.tokens.end(), tokens.begin(), tokens.end());
  row.generated.resize(row.tokens.size(), generated);
}

void Session::append(int row, std::span<const int32_t> tokens,
                     const std::function<Decoder::Output(CommandEncoder&, std::span<const Batch>)>& encode) {
  Row& r = at(row);
  if (tokens.empty()) fail(ErrorKind::usage, "no tokens to run: the prompt is empty");
  close_verified();
  check_tokens(r, tokens);
  settle();
  stepping_.clear();
  const bool had_drawn = std::exchange(r.has_drawn, false);
  const int64_t untaken = std::exchange(r.untaken, 0);
  if (has_head()) r.tail.rewind(r.state.length(), {}, state_width());  // the last pair was the drawn token's
  Tensor states;
  try {
    auto enc = model_->device->begin();
    if (r.sampling.penalties()) {
      if (had_drawn) sync(row);  // the token was counted when it was drawn
      count_prompt(row, tokens);
    }
    r.state.reserve(static_cast<int64_t>(tokens.size()), has_head() ? r.tail.pairs() : r.state.length());
    const std::vector<int32_t> rows(tokens.size(), row);
    std::vector<Batch> step = batches(tokens, rows);
    // Not in place: an interrupted prompt leaves the row's state as it was.
    advance_states(step.front(), std::span(&row, 1), KeepStates::last, false);
    step = of_groups(step.front());
    const Decoder::Output out = encode(*enc, step);
    if (has_head()) states = encode_pairs(*enc, row, tokens, out.every);
    enc->submit(true).wait();
  } catch (...) {
    r.has_drawn = had_drawn;
    r.untaken = untaken;
    r.state.cancel();
    sync(row);
    throw;
  }
  r.taken.reset();
  if (states) end_pairs(r, states);
  committed(r, tokens, false);
}

void Session::prefill(int row, std::span<const int32_t> tokens, bool draw) {
  const ModelLock lock(*model_);
  append(row, tokens, [&](CommandEncoder& enc, std::span<const Batch> b) {
    Tensor wanted;
    if (draw) wanted = upload(*model_->device, std::vector<int32_t>{static_cast<int32_t>(tokens.size()) - 1});
    Decoder::Output out = model_->decoder->forward(enc, b, *model_->cache, wanted, has_head());
    if (draw) encode_draws(enc, out.logits, std::vector<int32_t>{row}, b[0].sequence.slice(0, 1), draws_[0]);
    return out;
  });
  if (draw && !read_draw(row, draws_[0], 0)) fail_draw();
}

void Session::sync(int row) {
  Row& r = at(row);
  host_data<SampleParams>(params_)[row].step = r.sampling.params.step + r.draws;
  if (!r.sampling.penalties()) return;
  r.counted = true;
  uint32_t* counts = host_data<uint32_t>(counts_.slice(row, 1));
  std::fill_n(counts, model_->decoder->spec().vocab, 0u);
  for (size_t i = 0; i < r.tokens.size(); ++i) {
    uint32_t& count = counts[r.tokens[i]];
    count = r.generated[i] ? count + 1 : count | SG_COUNT_PROMPT;
  }
  if (r.has_drawn) ++counts[r.drawn.id];
}

void Session::unpin(int row) {
  const ModelLock lock(*model_);
  at(row).state.unpin();
}

void Session::mark(int row, bool pin) {
  const ModelLock lock(*model_);
  settle();
  Row& r = at(row);
  if (pin)
    r.state.pin();
  else
    r.state.mark();
  if (!mtp() || r.state.length() == 0) return;
  const std::span<const float> last = r.tail.last(state_width());
  r.marked[r.state.length()] = {last.begin(), last.end()};
  std::erase_if(r.marked, [&](const auto& entry) { return r.state.rewindable(entry.first) != entry.first; });
  if (constexpr size_t kMost = 16; r.marked.size() > kMost) r.marked.erase(r.marked.begin());
}

int64_t Session::rewindable(int row, int64_t to) {
  const ModelLock lock(*model_);
  settle();
  return at(row).state.rewindable(to);
}

void Session::rewind(int row, int64_t to) {
  const ModelLock lock(*model_);
  Row& r = at(row);
  close_verified();
  if (to < 0 || to > r.state.length()) fail(ErrorKind::usage, "rewind to ", to, " of ", r.state.length(), " tokens");
  settle();
  r.state.rewind(to);
  const auto marked = r.marked.find(to);
  if (has_head())
    r.tail.rewind(to, marked == r.marked.end() ? std::span<const float>() : marked->second, state_width());
  r.marked.erase(r.marked.upper_bound(to), r.marked.end());
  stepping_.clear();
  forget_drawn(r);
  r.tokens.resize(static_cast<size_t>(to));
  r.generated.resize(static_cast<size_t>(to));
  sync(row);
}

std::shared_ptr<const Snapshot> Session::snapshot(int row) {
  const ModelLock lock(*model_);
  const Row& r = at(row);
  settle();
  std::shared_ptr<Snapshot> out(new Snapshot(model_));
  if (has_head()) {
    out->tail_ = r.tail;
    out->tail_.rewind(r.state.length(), {}, state_width());  // the drawn token is not in it
  }
  out->state_.share(r.state);
  out->tokens_ = r.tokens;
  out->generated_ = r.generated;
  return out;
}

void Session::restore(int row, const Snapshot& from) {
  const ModelLock lock(*model_);
  Row& r = at(row);
  if (from.model_ != model_) fail(ErrorKind::usage, "a snapshot of another model cannot be restored");
  if (from.length() > context_)
    fail(ErrorKind::usage, "a snapshot of ", from.length(), " tokens does not fit the context of ", context_);
  settle();
  stepping_.clear();
  forget_drawn(r);
  r.state.share(from.state_);
  r.tokens = from.tokens_;
  r.generated = from.generated_;
  r.tail = from.tail_;
  r.marked.clear();
  sync(row);
}

std::vector<float> Session::logits(int row, std::span<const int32_t> tokens) {
  const ModelLock lock(*model_);
  Tensor out;
  append(row, tokens, [&](CommandEncoder& enc, std::span<const Batch> b) {
    std::vector<int32_t> all(tokens.size());
    std::iota(all.begin(), all.end(), 0);
    const Tensor wanted = upload(*model_->device, all);
    Decoder::Output forward = model_->decoder->forward(enc, b, *model_->cache, wanted, has_head());
    out = model_->device->tensor(DType::f32, forward.logits.shape);
    enc.gather_rows(out, forward.logits, wanted);
    return forward;
  });
  const float* values = host_data<float>(out);
  return {values, values + out.numel()};
}

std::vector<float> Session::hidden(int row, std::span<const int32_t> tokens) {
  const ModelLock lock(*model_);
  std::vector<Tensor> layers;
  append(row, tokens, [&](CommandEncoder& enc, std::span<const Batch> b) {
    const Tensor wanted = upload(*model_->device, std::vector<int32_t>{static_cast<int32_t>(tokens.size()) - 1});
    return model_->decoder->forward(enc, b, *model_->cache, wanted, has_head(), &layers);
  });
  std::vector<float> out;
  for (const Tensor& layer : layers) {
    const float* values = host_data<float>(layer);
    out.insert(out.end(), values, values + layer.numel());
  }
  return out;
}

}  // namespace saragossa
