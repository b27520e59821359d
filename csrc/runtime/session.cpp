#include "runtime/session.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace saragossa {
namespace {

constexpr int64_t max_logprobs = 20;  // as OpenAI allows

Tensor upload(Device& device, std::span<const int32_t> values) {
  const Tensor t = device.tensor(DType::i32, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), host_data<int32_t>(t));
  return t;
}

[[noreturn]] void fail_draw() {
  fail(ErrorKind::device, "the model's logits are not finite, or every token is masked: nothing can be drawn");
}

}  // namespace

Session::Session(std::shared_ptr<Model> model, int rows, int64_t context)
    : model_(std::move(model)), context_(context) {
  require(rows >= 1, "session: ", rows, " rows");
  Device& device = *model_->device;
  const int64_t n = rows;
  const int64_t vocab = model_->decoder->spec().vocab;
  const int64_t size = model_->cache->block_tokens();
  rows_.reserve(static_cast<size_t>(rows));
  for (int i = 0; i < rows; ++i) rows_.emplace_back(*model_->cache);
  ids_ = device.tensor(DType::i32, {n});
  positions_ = device.tensor(DType::i32, {n});
  sequence_ = device.tensor(DType::i32, {n});
  block_table_ = device.tensor(DType::i32, {n, (context + size - 1) / size});
  params_ = device.tensor(DType::u8, {n, static_cast<int64_t>(sizeof(SampleParams))});
  identity_ = device.tensor(DType::i32, {n});
  std::iota(host_data<int32_t>(identity_), host_data<int32_t>(identity_) + n, 0);
  for (Draws& draws : draws_)
    draws = {device.tensor(DType::i32, {n}), device.tensor(DType::f32, {n, 1 + max_logprobs}),
             device.tensor(DType::i32, {n, 1 + max_logprobs})};
  counts_ = device.tensor(DType::u32, {n, vocab});
  for (int i = 0; i < rows; ++i) configure(i, Sampling{});
}

Session::Row& Session::at(int row) {
  if (row < 0 || row >= rows()) fail(ErrorKind::usage, "session: row ", row, " of ", rows());
  return rows_[static_cast<size_t>(row)];
}

void Session::configure(int row, const Sampling& sampling) {
  Row& r = at(row);
  settle();
  Device& device = *model_->device;
  const int64_t vocab = model_->decoder->spec().vocab;
  for (const auto& [id, value] : sampling.bias)
    if (id < 0 || id >= vocab)
      fail(ErrorKind::parameter, "logit_bias: token id ", id, " is out of range; the vocabulary has ", vocab);
  r.sampling = sampling;
  r.draws = 0;
  r.bias_ids = r.bias = {};
  if (!sampling.bias.empty()) {
    const auto n = static_cast<int64_t>(sampling.bias.size());
    r.bias_ids = device.tensor(DType::i32, {1, n});
    r.bias = device.tensor(DType::f32, {1, n});
    for (int64_t i = 0; i < n; ++i) {
      const auto& [id, value] = sampling.bias[static_cast<size_t>(i)];
      host_data<int32_t>(r.bias_ids)[i] = id;
      host_data<float>(r.bias)[i] = value;
    }
  }
  r.sampling.params.n_bias = static_cast<int32_t>(sampling.bias.size());
  std::memcpy(host_data<uint8_t>(params_.slice(row, 1)), &r.sampling.params, sizeof(SampleParams));
  const Tensor counts = counts_.slice(row, 1);
  // Untouched pages of a fresh session stay untouched.
  if (!r.tokens.empty() || r.has_drawn)
    std::memset(host_data<uint32_t>(counts), 0, static_cast<size_t>(counts.nbytes()));
  if (r.sampling.penalties()) count_prompt(row, r.tokens);
  r.prompt = static_cast<int64_t>(r.tokens.size());
}

void Session::set_mask(int row, std::span<const uint32_t> mask) {
  Row& r = at(row);
  settle();
  const int64_t words = (model_->decoder->spec().vocab + 31) / 32;
  if (mask.empty()) {
    r.mask = {};
    return;
  }
  if (static_cast<int64_t>(mask.size()) != words)
    fail(ErrorKind::usage, "mask of ", mask.size(), " words, the vocabulary takes ", words);
  if (!r.mask) r.mask = model_->device->tensor(DType::u32, {1, words});
  std::copy(mask.begin(), mask.end(), host_data<uint32_t>(r.mask));
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

Batch Session::batch(std::span<const int32_t> tokens, std::span<const int32_t> rows) {
  Device& device = *model_->device;
  std::vector<int32_t> positions(tokens.size());
  std::vector<int64_t> next(rows_.size(), -1);
  Batch out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto row = static_cast<size_t>(rows[i]);
    if (next[row] < 0) {
      next[row] = rows_[row].state.length();
      const std::vector<int32_t>& blocks = rows_[row].state.blocks();
      std::copy(blocks.begin(), blocks.end(), host_data<int32_t>(block_table_.slice(rows[i], 1)));
    }
    positions[i] = static_cast<int32_t>(next[row]++);
    out.max_keys = std::max(out.max_keys, next[row]);
  }
  out.ids = upload(device, tokens);
  out.positions = upload(device, positions);
  out.sequence = upload(device, rows);
  out.block_table = block_table_;
  return out;
}

Tensor Session::forward(CommandEncoder& enc, int row, std::span<const int32_t> tokens, const Tensor& wanted, Batch& out,
                        std::vector<Tensor>* hidden) {
  Row& r = at(row);
  if (tokens.empty()) fail(ErrorKind::usage, "no tokens to run: the prompt is empty");
  check_tokens(r, tokens);
  r.state.reserve(static_cast<int64_t>(tokens.size()));
  const std::vector<int32_t> rows(tokens.size(), row);
  out = batch(tokens, rows);
  return model_->decoder->forward(enc, out, *model_->cache, wanted, hidden);
}

void Session::encode_draw(CommandEncoder& enc, const Tensor& logits, int row, const Draws& draws, int64_t i) {
  const Row& r = at(row);
  SampleArgs args;
  args.logits = logits;
  args.params = params_.slice(row, 1);
  args.ids = draws.ids.slice(i, 1);
  if (r.sampling.penalties()) args.counts = counts_.slice(row, 1);
  args.bias_ids = r.bias_ids;
  args.bias = r.bias;
  args.mask = r.mask;
  args.filtered = r.sampling.filtered();
  if (const int32_t n = r.sampling.params.top_logprobs; n >= 0) {
    args.logprobs = draws.logprobs.slice(i, 1).reshape({1 + max_logprobs}).slice(0, 1 + n).reshape({1, 1 + n});
    args.logprob_ids = draws.logprob_ids.slice(i, 1).reshape({1 + max_logprobs}).slice(0, 1 + n).reshape({1, 1 + n});
  }
  enc.sample(args);
}

bool Session::read_draw(int row, const Draws& draws, int64_t i) {
  Row& r = at(row);
  r.drawn = {};
  ++r.draws;
  r.drawn.id = *host_data<int32_t>(draws.ids.slice(i, 1));
  r.has_drawn = r.drawn.id >= 0;
  if (!r.has_drawn) return false;
  const int32_t n = r.sampling.params.top_logprobs;
  const float* values = host_data<float>(draws.logprobs.slice(i, 1));
  const int32_t* ids = host_data<int32_t>(draws.logprob_ids.slice(i, 1));
  for (int32_t j = 0; j <= n; ++j) r.drawn.logprobs.emplace_back(ids[j], values[j]);
  return true;
}

void Session::count_prompt(int row, std::span<const int32_t> tokens) {
  uint32_t* counts = host_data<uint32_t>(counts_.slice(row, 1));
  for (const int32_t id : tokens) counts[id] |= SG_COUNT_PROMPT;
}

void Session::committed(Row& row, std::span<const int32_t> tokens, bool prompt) {
  row.state.commit(static_cast<int64_t>(tokens.size()));
  row.tokens.insert(row.tokens.end(), tokens.begin(), tokens.end());
  if (prompt) row.prompt = static_cast<int64_t>(row.tokens.size());
}

void Session::prefill(int row, std::span<const int32_t> tokens, bool draw) {
  const ModelLock lock(*model_);
  Row& r = at(row);
  settle();
  stepping_.clear();
  r.has_drawn = false;
  auto enc = model_->device->begin();
  Tensor wanted;
  if (draw) wanted = upload(*model_->device, std::vector<int32_t>{static_cast<int32_t>(tokens.size()) - 1});
  Batch b;
  const Tensor logits = forward(*enc, row, tokens, wanted, b);
  if (r.sampling.penalties()) count_prompt(row, tokens);
  if (draw) encode_draw(*enc, logits, row, draws_[0], 0);
  enc->submit(true).wait();
  committed(r, tokens, true);
  if (draw && !read_draw(row, draws_[0], 0)) fail_draw();
}

bool Session::may_run_ahead(std::span<const int32_t> rows) const {
  const Device& device = *model_->device;
  if (!device.asynchronous() || !device.switches().run_ahead) return false;
  for (const int32_t row : rows) {
    const Row& r = at(row);
    // A mask is made from the tokens before it; the step after the next needs a place in the context.
    if (r.mask || r.state.length() + 2 > context_) return false;
  }
  return true;
}

Session::RunningStep Session::start_step(std::span<const int32_t> rows, int64_t ahead) {
  const auto n = static_cast<int64_t>(rows.size());
  for (const int32_t row : rows) at(row).state.reserve(ahead + 1);
  Batch b;
  if (ahead == 0 && !std::equal(rows.begin(), rows.end(), stepping_.begin(), stepping_.end())) {
    std::vector<int32_t> tokens;
    for (const int32_t row : rows) tokens.push_back(at(row).drawn.id);
    b = batch(tokens, rows);
    stepping_.clear();
    ids_ = b.ids;
    positions_ = b.positions;
    sequence_ = b.sequence;
  } else {
    // ids and positions are on the device already: the last step's draw and advance put them there.
    b.ids = ids_;
    b.positions = positions_;
    b.sequence = sequence_;
    b.block_table = block_table_;
    for (const int32_t row : rows) {
      const Row& r = at(row);
      b.max_keys = std::max(b.max_keys, r.state.length() + ahead + 1);
      host_data<int32_t>(block_table_.slice(row, 1))[r.state.blocks().size() - 1] = r.state.blocks().back();
    }
  }
  RunningStep step{{rows.begin(), rows.end()}, std::exchange(next_draws_, 1 - next_draws_), {}};
  const Draws& draws = draws_[step.draws];
  auto enc = model_->device->begin();
  const Tensor logits = model_->decoder->forward(*enc, b, *model_->cache, identity_.slice(0, n));
  for (int64_t i = 0; i < n; ++i) encode_draw(*enc, logits.slice(i, 1), rows[static_cast<size_t>(i)], draws, i);
  enc->advance(b, draws.ids.slice(0, n));
  stepping_.clear();  // until the step is done, what the device holds is not to be trusted
  step.done = enc->submit();
  return step;
}

void Session::step(std::span<const int32_t> rows) {
  const ModelLock lock(*model_);
  if (rows.empty()) return;
  for (const int32_t row : rows) {
    const Row& r = at(row);
    if (!r.has_drawn) fail(ErrorKind::usage, "session: row ", row, " has no drawn token to go on from");
    if (std::count(rows.begin(), rows.end(), row) > 1) fail(ErrorKind::usage, "session: row ", row, " twice in a step");
    check_tokens(r, std::span(&r.drawn.id, 1));
  }
  if (ahead_ && !std::equal(rows.begin(), rows.end(), ahead_->rows.begin(), ahead_->rows.end())) settle();
  RunningStep step = ahead_ ? *std::exchange(ahead_, std::nullopt) : start_step(rows, 0);
  if (may_run_ahead(rows)) {
    try {
      ahead_ = start_step(rows, 1);
    } catch (const Error&) {  // no place for a token that nobody has asked for yet: its turn may still come
      ahead_.reset();
    }
  }
  try {
    step.done.wait();
  } catch (...) {  // the rows stand where they stood
    settle();
    for (const int32_t row : rows) sync(row);
    throw;
  }
  if (!ahead_) stepping_.assign(rows.begin(), rows.end());
  for (const int32_t row : rows) {
    Row& r = at(row);
    committed(r, std::span(&r.drawn.id, 1), false);
  }
  bool drawn = true;
  for (size_t i = 0; i < rows.size(); ++i) drawn &= read_draw(rows[i], draws_[step.draws], static_cast<int64_t>(i));
  if (!drawn) fail_draw();
}

void Session::settle() {
  if (!ahead_) return;
  const RunningStep step = std::move(*ahead_);
  ahead_.reset();
  stepping_.clear();
  try {
    step.done.wait();
  } catch (const Error&) {  // nobody wanted what it made
  }
  for (const int32_t row : step.rows) sync(row);
}

void Session::sync(int row) {
  const Row& r = at(row);
  host_data<SampleParams>(params_)[row].step = r.sampling.params.step + r.draws;
  if (!r.sampling.penalties()) return;
  uint32_t* counts = host_data<uint32_t>(counts_.slice(row, 1));
  std::fill_n(counts, model_->decoder->spec().vocab, 0u);
  count_prompt(row, std::span(r.tokens).first(static_cast<size_t>(r.prompt)));
  for (size_t i = static_cast<size_t>(r.prompt); i < r.tokens.size(); ++i) ++counts[r.tokens[i]];
  if (r.has_drawn) ++counts[r.drawn.id];
}

void Session::rewind(int row, int64_t to) {
  const ModelLock lock(*model_);
  Row& r = at(row);
  if (to < 0 || to > r.state.length()) fail(ErrorKind::usage, "rewind to ", to, " of ", r.state.length(), " tokens");
  settle();
  stepping_.clear();
  r.has_drawn = false;
  r.state.rewind(to);
  r.tokens.resize(static_cast<size_t>(to));
  r.prompt = std::min(r.prompt, to);
  sync(row);
}

std::shared_ptr<const Snapshot> Session::snapshot(int row) {
  const ModelLock lock(*model_);
  const Row& r = at(row);
  settle();
  std::shared_ptr<Snapshot> out(new Snapshot(model_));
  out->state_.share_prefix(r.state, r.state.length());
  out->tokens_ = r.tokens;
  out->prompt_ = r.prompt;
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
  r.has_drawn = false;
  r.state.rewind(0);
  r.state.share_prefix(from.state_, from.length());
  r.tokens = from.tokens_;
  r.prompt = from.prompt_;
  sync(row);
}

std::vector<float> Session::logits(int row, std::span<const int32_t> tokens) {
  const ModelLock lock(*model_);
  Row& r = at(row);
  settle();
  stepping_.clear();
  r.has_drawn = false;
  auto enc = model_->device->begin();
  std::vector<int32_t> all(tokens.size());
  std::iota(all.begin(), all.end(), 0);
  Batch b;
  const Tensor wanted = upload(*model_->device, all);
  const Tensor logits = forward(*enc, row, tokens, wanted, b);
  const Tensor out = model_->device->tensor(DType::f32, logits.shape);
  enc->gather_rows(out, logits, wanted);
  enc->submit(true).wait();
  committed(r, tokens, true);
  const float* values = host_data<float>(out);
  return {values, values + out.numel()};
}

std::vector<float> Session::hidden(int row, std::span<const int32_t> tokens) {
  const ModelLock lock(*model_);
  Row& r = at(row);
  settle();
  stepping_.clear();
  r.has_drawn = false;
  auto enc = model_->device->begin();
  Batch b;
  std::vector<Tensor> layers;
  const Tensor wanted = upload(*model_->device, std::vector<int32_t>{static_cast<int32_t>(tokens.size()) - 1});
  forward(*enc, row, tokens, wanted, b, &layers);
  enc->submit(true).wait();
  committed(r, tokens, true);
  std::vector<float> out;
  for (const Tensor& layer : layers) {
    const float* values = host_data<float>(layer);
    out.insert(out.end(), values, values + layer.numel());
  }
  return out;
}

}  // namespace saragossa
