// Heads for drafts beside a session: their keys and values follow the row's, their drafts come from the row's states.

#include <algorithm>
#include <numeric>

#include "runtime/session.h"

namespace saragossa {
namespace {

constexpr int64_t kPending = 256;  // states that wait for their pairs, at most, and those of one verification

/// False where the cache has no place for what a head wants: that costs drafts, and no token.
template <class Run>
bool if_there_is_room(Run run) {
  try {
    run();
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::context) throw;
    return false;
  }
}

}  // namespace

Tensor Session::pending_states(const Row& row, int64_t more) const {
  const int64_t width = state_width();
  const std::span<const float> pending = row.tail.pending(width);
  const Tensor out = model_->device->tensor(DType::f32, {static_cast<int64_t>(pending.size()) / width + more, width});
  std::copy(pending.begin(), pending.end(), host_data<float>(out));
  return out;
}

int64_t Session::waiting_states(int row) const {
  return static_cast<int64_t>(at(row).tail.pending(state_width()).size()) / std::max<int64_t>(1, state_width());
}

std::vector<Batch> Session::pair_batches(int row, const Tensor& ids, int64_t first) {
  Device& device = *model_->device;
  const int64_t n = ids.shape[0];
  std::vector<int32_t> positions(static_cast<size_t>(n));
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(first));
  write_block_tables(row);
  Batch out;
  out.ids = ids;
  out.positions = upload(device, positions);
  out.sequence = upload(device, std::vector<int32_t>(static_cast<size_t>(n), row));
  out.max_keys = first + n;
  out.runs = {n};
  return of_groups(out);
}

Tensor Session::encode_pairs(CommandEncoder& enc, int row, std::span<const int32_t> tokens, const Tensor& every) {
  const Row& r = at(row);
  const auto n = static_cast<int64_t>(tokens.size());
  const int64_t first = r.tail.pairs();
  const Tensor states = pending_states(r, n);
  const int64_t pairs = states.shape[0] - (block() ? 0 : 1);
  if (n > 0) enc.copy(states.slice(states.shape[0] - n, n), every);
  if (pairs <= 0) return states;
  if (block()) {
    const Tensor ids = upload(*model_->device, std::vector<int32_t>(static_cast<size_t>(pairs), 0));  // not read
    block()->store(enc, *model_->decoder, pair_batches(row, ids, first), *model_->cache, states);
    return states;
  }
  std::vector<int32_t> next(r.tokens.begin() + std::min<int64_t>(first + 1, r.state.length()), r.tokens.end());
  next.insert(next.end(), tokens.begin(), tokens.end());
  const std::span<const int32_t> ids = std::span(next).last(static_cast<size_t>(pairs));
  mtp()->forward(enc, *model_->decoder, pair_batches(row, upload(*model_->device, ids), first), *model_->cache,
                 states.slice(0, pairs), {});
  return states;
}

void Session::end_pairs(Row& row, const Tensor& states) {
  const int64_t width = state_width();
  const int64_t pending = static_cast<int64_t>(row.tail.pending(width).size()) / width;
  const float* values = host_data<float>(states);
  row.tail.append({values + pending * width, static_cast<size_t>(states.numel() - pending * width)});
  row.tail.made(row.tail.pairs() + states.shape[0] - (block() ? 0 : 1), width);
}

void Session::catch_up(int row) {
  Row& r = at(row);
  if (static_cast<int64_t>(r.tail.pending(state_width()).size()) <= kPending * state_width()) return;
  settle();
  stepping_.clear();
  // Where there is no room the states wait on; the step itself is done.
  if_there_is_room([&] {
    try {
      auto enc = model_->device->begin();
      r.state.reserve(0, r.tail.pairs(), Marks::own);
      const Tensor states = encode_pairs(*enc, row, {}, {});
      enc->submit().wait();
      end_pairs(r, states);
    } catch (...) {
      r.state.cancel();
      throw;
    }
  });
}

void Session::run_mtp(int row, int64_t count, std::span<const int32_t> given, const Tensor& logits) {
  Row& r = at(row);
  Device& device = *model_->device;
  const int64_t length = r.state.length(), width = state_width();
  r.tail.rewind(length, {}, width);  // drafts may be asked for twice
  stepping_.clear();
  try {
    auto enc = device.begin();
    int64_t first = r.tail.pairs();
    r.state.reserve(count, first, Marks::own);
    Tensor states = pending_states(r, 0);
    std::vector<int32_t> next(r.tokens.begin() + first + 1, r.tokens.end());
    next.push_back(r.drawn.id);
    Tensor ids = upload(device, next);
    for (int64_t i = 0; i < count; ++i) {
      const Tensor wanted = upload(device, std::vector<int32_t>{static_cast<int32_t>(ids.shape[0]) - 1});
      const MtpHead::Output out =
          mtp()->forward(*enc, *model_->decoder, pair_batches(row, ids, first), *model_->cache, states, wanted);
      if (logits) enc->copy(logits.slice(i, 1), out.logits);
      first = length + i;
      states = out.normed;
      if (given.empty()) {
        const SampleArgs args = args_ahead(row, out.logits, i);
        enc->sample(args);
        ids = args.ids;
      } else if (i + 1 < count) {
        ids = upload(device, given.subspan(static_cast<size_t>(i), 1));
      }
    }
    enc->submit().wait();
  } catch (...) {
    r.state.cancel();
    throw;
  }
  r.tail.made(length, width);
}

void Session::run_block(int row, int64_t count, const Tensor& logits) {
  Row& r = at(row);
  Device& device = *model_->device;
  const BlockSpec& spec = *model_->decoder->spec().block;
  const int64_t length = r.state.length(), size = std::min(spec.size, context_ - length);
  count = std::min(count, size - 1);
  stepping_.clear();
  Tensor states;
  try {
    auto enc = device.begin();
    r.state.reserve(size, r.tail.pairs(), Marks::own);
    if (!r.tail.pending(state_width()).empty()) states = encode_pairs(*enc, row, {}, {});
    std::vector<int32_t> ids(static_cast<size_t>(size), spec.mask);
    ids.front() = r.drawn.id;
    const std::vector<Batch> block_rows = pair_batches(row, upload(device, ids), length);
    // Each row is a run of its own that stands at the end of the block.
    Batch see = block_rows.front();
    see.positions = upload(device, std::vector<int32_t>(ids.size(), static_cast<int32_t>(length + size - 1)));
    see.runs.assign(ids.size(), 1);
    const Tensor all = block()->draft(*enc, *model_->decoder, block_rows, of_groups(see), *model_->cache);
    const Tensor wanted = all.slice(0, count);
    if (logits) enc->copy(logits.slice(0, count), wanted);
    enc->sample(args_ahead(row, wanted, 0));
    enc->submit().wait();
  } catch (...) {
    r.state.cancel();
    throw;
  }
  if (states) end_pairs(r, states);
}

void Session::begin_drafts(int row, bool head, const char* name) {
  settle();
  if (!head) fail(ErrorKind::usage, "the model was loaded without ", name);
  if (!at(row).has_drawn) fail(ErrorKind::usage, "session: row ", row, " has no drawn token to go on from");
}

std::vector<int32_t> Session::drafted(int64_t count) const {
  const int32_t* ids = host_data<int32_t>(verification_.draws.ids);
  return {ids, std::find_if(ids, ids + count, [](int32_t id) { return id < 0; })};
}

std::vector<int32_t> Session::draft_by_mtp(int row, int64_t count) {
  const ModelLock lock(*model_);
  begin_drafts(row, mtp() != nullptr, "an MTP head");
  count = std::min({count, kMostDrafts, context_ - at(row).state.length() - 1});
  if (count <= 0 || !if_there_is_room([&] { run_mtp(row, count, {}, {}); })) return {};
  return drafted(count);
}

std::vector<int32_t> Session::draft_by_block(int row, int64_t count) {
  const ModelLock lock(*model_);
  begin_drafts(row, block() != nullptr, "a block drafter");
  count =
      std::min({count, kMostDrafts, model_->decoder->spec().block->size - 1, context_ - at(row).state.length() - 1});
  if (count <= 0 || !if_there_is_room([&] { run_block(row, count, {}); })) return {};
  return drafted(count);
}

std::vector<float> Session::mtp_logits(int row, std::span<const int32_t> drafts) {
  const ModelLock lock(*model_);
  begin_drafts(row, mtp() != nullptr, "an MTP head");
  const auto count = static_cast<int64_t>(drafts.size()) + 1;
  std::vector<int32_t> given(drafts.begin(), drafts.end());
  given.push_back(0);  // the last one's logits are wanted, not what follows it
  check_tokens(at(row), given);
  const Tensor logits = model_->device->tensor(DType::f32, {count, model_->decoder->spec().vocab});
  run_mtp(row, count, given, logits);
  const float* values = host_data<float>(logits);
  return {values, values + logits.numel()};
}

std::vector<float> Session::block_logits(int row, int64_t count) {
  const ModelLock lock(*model_);
  begin_drafts(row, block() != nullptr, "a block drafter");
  if (count < 1 || count > std::min(kMostDrafts, model_->decoder->spec().block->size - 1))
    fail(ErrorKind::usage, count, " drafts of a block");
  check_tokens(at(row), std::vector<int32_t>(static_cast<size_t>(count) + 1, 0));
  const Tensor logits = model_->device->tensor(DType::f32, {count, model_->decoder->spec().vocab});
  run_block(row, count, logits);
  const float* values = host_data<float>(logits);
  return {values, values + logits.numel()};
}

}  // namespace saragossa
