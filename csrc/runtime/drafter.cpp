#include "runtime/drafter.h"

#include <algorithm>

namespace saragossa {

LookupDrafter::LookupDrafter(int64_t shortest, int64_t longest) : shortest_(shortest), longest_(longest) {
  if (shortest < 1 || longest < shortest)
    fail(ErrorKind::parameter, "lookup: matches of ", shortest, " to ", longest, " tokens, expected 1 or more");
}

std::vector<int32_t> LookupDrafter::propose(Session& session, int row, int64_t most) {
  RowView view = session.view(row);
  std::vector<int32_t>& all = view.tokens;
  all.push_back(view.drawn.id);
  const auto size = static_cast<int64_t>(all.size());
  int64_t best = shortest_ - 1, at = -1;  // length of the match, and what follows it
  for (int64_t end = size - 1; end > std::max<int64_t>(0, size - kLookBack) && best < longest_; --end) {
    int64_t n = 0;
    while (n < longest_ && n < end && all[static_cast<size_t>(end - 1 - n)] == all[static_cast<size_t>(size - 1 - n)])
      ++n;
    if (n > best) best = n, at = end;
  }
  if (at < 0) return {};
  for (int64_t i = 0; i < most; ++i) all.push_back(all[static_cast<size_t>(at + i)]);  // a cycle goes on
  return {all.begin() + size, all.end()};
}

ModelDrafter::ModelDrafter(std::shared_ptr<Model> model, int64_t context, int64_t chunk)
    : vocab_(model->decoder->spec().vocab), chunk_(chunk), session_(std::move(model), 1, context) {
  if (chunk < 1) fail(ErrorKind::parameter, "draft model: chunks of ", chunk, " tokens");
}

std::vector<int32_t> ModelDrafter::propose(Session& session, int row, int64_t most) {
  RowView view = session.view(row);
  const std::vector<int32_t>& wanted = view.tokens;
  // Tables may be padded differently: what one of the models does not have ends the drafts.
  const auto has = [&](int32_t id) { return id < vocab_; };
  if (!has(view.drawn.id) || !std::all_of(wanted.begin(), wanted.end(), has)) return {};
  std::erase_if(view.sampling.bias, [&](const auto& entry) { return !has(entry.first); });
  const auto length = static_cast<int64_t>(wanted.size());
  most = std::min(most, session_.context() - length - 1);
  if (most <= 0) return {};

  std::vector<int32_t> out;
  try {
    run(view, most, out);
  } catch (const NothingDrawn&) {  // a draft model that fails drafts no more; the target's tokens do not need it
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::context) throw;  // its cache is full
  }
  // Ids that the other model does not have.
  const int64_t vocab = session.vocab();
  out.erase(std::find_if(out.begin(), out.end(), [&](int32_t id) { return id >= vocab; }), out.end());
  return out;
}

void ModelDrafter::run(const RowView& view, int64_t most, std::vector<int32_t>& out) {
  const std::vector<int32_t>& wanted = view.tokens;
  const auto length = static_cast<int64_t>(wanted.size());
  const std::vector<int32_t> mine = session_.tokens(0);
  const auto common = std::mismatch(mine.begin(), mine.end(), wanted.begin(), wanted.end()).first - mine.begin();
  int64_t at = session_.rewindable(0, common);
  session_.rewind(0, at);
  for (; at < length; at += chunk_) {
    const std::span<const int32_t> rest = std::span(wanted).subspan(static_cast<size_t>(at));
    session_.prefill(0, rest.first(static_cast<size_t>(std::min<int64_t>(chunk_, length - at))), false);
  }
  session_.mark(0);  // the next call comes back to here
  session_.follow(0, view);
  const int32_t mine_row = 0;
  while (static_cast<int64_t>(out.size()) < most) {
    session_.step(std::span(&mine_row, 1));
    out.push_back(session_.drawn(0).id);
  }
}

}  // namespace saragossa
