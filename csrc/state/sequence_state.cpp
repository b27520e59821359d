#include "state/sequence_state.h"

#include <algorithm>
#include <utility>

namespace saragossa {
namespace {

int64_t blocks_for(int64_t tokens, int64_t size) { return (tokens + size - 1) / size; }

}  // namespace

SequenceState::SequenceState(ModelCache& cache) : cache_(&cache), blocks_(cache.groups()) { enter(); }

SequenceState::~SequenceState() {
  if (!cache_) return;
  leave();
  clear();
}

void SequenceState::enter() {
  const std::lock_guard lock(cache_->sequences.mutex);
  cache_->sequences.all.push_back(this);
}

void SequenceState::leave() {
  const std::lock_guard lock(cache_->sequences.mutex);
  std::erase(cache_->sequences.all, this);
}

SequenceState::SequenceState(SequenceState&& other) noexcept
    : cache_(other.cache_),
      blocks_(std::move(other.blocks_)),
      length_(std::exchange(other.length_, 0)),
      slot_(std::exchange(other.slot_, -1)),
      lost_(std::exchange(other.lost_, false)),
      steps_(std::move(other.steps_)),
      marks_(std::move(other.marks_)),
      pinned_(std::exchange(other.pinned_, 0)),
      last_step_(other.last_step_) {
  if (!cache_) return;
  const std::lock_guard lock(cache_->sequences.mutex);
  std::replace(cache_->sequences.all.begin(), cache_->sequences.all.end(), &other, this);
  other.cache_ = nullptr;
}

/// The first position whose keys a token at `position` sees.
int64_t SequenceState::keys_from(size_t group, int64_t position) const {
  const int64_t window = cache_->window(group);
  return window == 0 ? 0 : std::max<int64_t>(0, position - window + 1);
}

template <class F>
auto SequenceState::with_room(size_t pool, Marks marks, F f) -> decltype(f()) {
  for (;;) {
    try {
      return f();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::context) throw;
      if (!drop_oldest_mark(pool) && (marks == Marks::own || !drop_mark_of_another(pool))) throw;
    }
  }
}

bool SequenceState::drop_oldest_mark(size_t pool) {
  const auto oldest = std::find_if(marks_.begin(), marks_.end(), [&](const Mark& mark) {
    return mark.position != pinned_ && (pool == kSlots ? mark.slot >= 0 : !mark.blocks[pool].empty());
  });
  if (oldest == marks_.end()) return false;
  drop(*oldest);
  marks_.erase(oldest);
  return true;
}

bool SequenceState::drop_mark_of_another(size_t pool) {
  const std::lock_guard lock(cache_->sequences.mutex);
  std::vector<SequenceState*> others = cache_->sequences.all;
  std::erase(others, this);
  std::sort(others.begin(), others.end(),
            [](const SequenceState* a, const SequenceState* b) { return a->last_step_ < b->last_step_; });
  return std::any_of(others.begin(), others.end(), [&](SequenceState* other) { return other->drop_oldest_mark(pool); });
}

void SequenceState::reserve(int64_t tokens, int64_t from, Marks marks) {
  last_step_ = ++cache_->sequences.steps;
  const int64_t size = cache_->block_tokens();
  for (size_t g = 0; g < blocks_.size(); ++g) {
    KvCache& cache = cache_->group(g);
    std::vector<int32_t>& blocks = blocks_[g];
    for (auto written = static_cast<size_t>(from / size); written < blocks.size(); ++written) {
      int32_t& block = blocks[written];
      if (block < 0) continue;
      const int32_t mine = with_room(g, marks, [&] { return cache.shared(block) ? cache.copy(block) : block; });
      if (mine != block) cache.release(std::exchange(block, mine));
    }
    blocks.reserve(static_cast<size_t>(blocks_for(length_ + tokens, size)));  // so that what is taken is kept
    while (static_cast<int64_t>(blocks.size()) * size < length_ + tokens)
      blocks.push_back(with_room(g, marks, [&] { return cache.take(); }));
  }
}

SequenceState::Slots SequenceState::advance(int64_t rows, KeepStates keep, bool in_place) {
  check_kept();
  Slots told;
  if (recurrent()) told.in = steps_.empty() ? slot_ : steps_.back().out.back();
  told.out.assign(static_cast<size_t>(rows), -1);
  steps_.push_back(std::move(told));  // first, so that what is taken is kept
  Slots& step = steps_.back();
  if (!recurrent()) return step;
  RecurrentCache& cache = cache_->recurrent();
  const Marks marks = keep == KeepStates::each && rows > 1 ? Marks::own : Marks::all;
  try {
    for (size_t t = keep == KeepStates::each ? 0 : step.out.size() - 1; t < step.out.size(); ++t)
      step.out[t] = with_room(kSlots, marks, [&] {
        const bool over = in_place && keep == KeepStates::last && step.in >= 0 && !cache.shared(step.in);
        return over ? step.in : cache.take();
      });
  } catch (...) {
    drop_last_step();
    throw;
  }
  return step;
}

void SequenceState::drop_last_step() {
  for (const int32_t slot : steps_.back().out)
    if (slot >= 0 && slot != steps_.back().in) cache_->recurrent().release(slot);
  steps_.pop_back();
}

void SequenceState::set_slot(int32_t slot) {
  if (slot != slot_ && slot_ >= 0) cache_->recurrent().release(slot_);
  slot_ = slot;
  lost_ = false;
}

void SequenceState::check_kept() const {
  if (lost_)
    fail(ErrorKind::state, "the recurrent states of ", length_,
         " tokens were lost when a step failed: going on needs a snapshot, or a rewind to ", rewindable(length_));
}

void SequenceState::commit(int64_t tokens) {
  require(!steps_.empty() && tokens > 0, "sequence: commit of a step that was not told");
  const Slots step = std::move(steps_.front());
  steps_.pop_front();
  const auto rows = static_cast<int64_t>(step.out.size());
  require(tokens == rows || (tokens < rows && steps_.empty()), "sequence: commit of ", tokens, " of ", rows, " tokens");
  for (const std::vector<int32_t>& blocks : blocks_)
    require(length_ + tokens <= static_cast<int64_t>(blocks.size()) * cache_->block_tokens(),
            "sequence: commit of tokens that were not reserved");
  if (recurrent()) {
    const int32_t kept = step.out[static_cast<size_t>(tokens - 1)];
    require(kept >= 0, "sequence: no state was kept behind ", tokens, " of ", rows, " tokens");
    for (const int32_t slot : step.out)
      if (slot >= 0 && slot != kept && slot != step.in) cache_->recurrent().release(slot);
    set_slot(kept);
  }
  length_ += tokens;
  release_behind_windows();
}

void SequenceState::cancel(size_t keep) {
  while (steps_.size() > keep) drop_last_step();
  int64_t tokens = length_;
  for (const Slots& step : steps_) tokens += static_cast<int64_t>(step.out.size());
  for (size_t g = 0; g < blocks_.size(); ++g) truncate(g, tokens);
}

void SequenceState::lose() {
  for (const Slots& step : steps_) lost_ |= step.in >= 0 && step.out.back() == step.in;
  cancel();
}

/// One block more than the window needs stays: a rewind by a few tokens is common.
void SequenceState::release_behind_windows() {
  const int64_t size = cache_->block_tokens();
  for (size_t g = 0; g < blocks_.size(); ++g) {
    auto keep = static_cast<size_t>(keys_from(g, length_) / size);
    keep -= std::min<size_t>(keep, 1);
    for (size_t i = keep; i-- > 0 && blocks_[g][i] >= 0;) {
      cache_->group(g).release(blocks_[g][i]);
      blocks_[g][i] = -1;
    }
  }
}

void SequenceState::truncate(size_t group, int64_t tokens) {
  const auto keep = static_cast<size_t>(blocks_for(tokens, cache_->block_tokens()));
  std::vector<int32_t>& blocks = blocks_[group];
  while (blocks.size() > keep) {
    if (blocks.back() >= 0) cache_->group(group).release(blocks.back());
    blocks.pop_back();
  }
}

void SequenceState::mark() {
  check_kept();
  if (length_ == 0 || (!marks_.empty() && marks_.back().position == length_)) return;
  Mark mark{length_, slot_, {}};
  for (size_t g = 0; g < blocks_.size(); ++g) {
    std::vector<int32_t>& kept = mark.blocks.emplace_back();
    if (cache_->window(g) == 0) continue;
    kept.assign(static_cast<size_t>(blocks_for(length_, cache_->block_tokens())), -1);
    for (auto i = static_cast<size_t>(keys_from(g, length_) / cache_->block_tokens()); i < kept.size(); ++i)
      kept[i] = blocks_[g][i];
  }
  marks_.push_back(std::move(mark));
  hold(marks_.back());
  if (marks_.size() <= kMarks) return;
  // The one goes whose loss costs least: the tokens run again from the mark before, against its distance from the end.
  size_t least = 0;
  double best = -1.0;
  for (size_t i = 0; i + 2 < marks_.size(); ++i) {
    if (marks_[i].position == pinned_) continue;
    const int64_t before = i == 0 ? 0 : marks_[i - 1].position;
    const double cost = static_cast<double>(marks_[i + 1].position - before) /
                        static_cast<double>(length_ - marks_[i].position + cache_->block_tokens());
    if (best < 0.0 || cost < best) best = cost, least = i;
  }
  drop(marks_[least]);
  marks_.erase(marks_.begin() + static_cast<std::ptrdiff_t>(least));
}

void SequenceState::pin() {
  mark();
  pinned_ = length_;
}

void SequenceState::hold(const Mark& mark) {
  if (mark.slot >= 0) cache_->recurrent().share(mark.slot);
  for (size_t g = 0; g < mark.blocks.size(); ++g)
    for (const int32_t block : mark.blocks[g])
      if (block >= 0) cache_->group(g).share(block);
}

void SequenceState::drop(const Mark& mark) {
  if (mark.slot >= 0) cache_->recurrent().release(mark.slot);
  for (size_t g = 0; g < mark.blocks.size(); ++g)
    for (const int32_t block : mark.blocks[g])
      if (block >= 0) cache_->group(g).release(block);
}

void SequenceState::drop_marks_behind(int64_t position) {
  while (!marks_.empty() && marks_.back().position > position) {
    drop(marks_.back());
    marks_.pop_back();
  }
  if (pinned_ > position) pinned_ = 0;
}

int64_t SequenceState::rewindable(int64_t to) const {
  to = std::clamp<int64_t>(to, 0, length_);
  bool here = (to == length_ && !lost_) || !recurrent();
  for (size_t g = 0; g < blocks_.size() && here; ++g) {
    const auto from = static_cast<size_t>(keys_from(g, to) / cache_->block_tokens());
    here = from >= blocks_[g].size() || to == 0 || blocks_[g][from] >= 0;
  }
  if (here) return to;
  for (auto mark = marks_.rbegin(); mark != marks_.rend(); ++mark)
    if (mark->position <= to) return mark->position;
  return 0;
}

void SequenceState::rewind(int64_t to) {
  require(to >= 0 && to <= length_, "sequence: rewind to ", to, " of ", length_);
  require(steps_.empty(), "sequence: rewind while a step is not committed");
  if (to == length_ && !lost_) return cancel();
  if (to == 0) return clear();
  const int64_t near = rewindable(to);
  if (near != to)
    fail(ErrorKind::state, "a rewind to ", to, " of ", length_,
         " tokens needs a snapshot: recurrent states and windows go back to kept positions only, the last one before "
         "is ",
         near);
  drop_marks_behind(to);
  const Mark* mark = !marks_.empty() && marks_.back().position == to ? &marks_.back() : nullptr;
  if (recurrent()) {
    cache_->recurrent().share(mark->slot);
    set_slot(mark->slot);
  }
  for (size_t g = 0; g < blocks_.size(); ++g) {
    if (mark && cache_->window(g) > 0) {
      std::vector<int32_t> blocks = mark->blocks[g];
      for (const int32_t block : blocks)
        if (block >= 0) cache_->group(g).share(block);
      truncate(g, 0);
      blocks_[g] = std::move(blocks);
    } else {
      truncate(g, to);
    }
  }
  length_ = to;
}

void SequenceState::clear() {
  cancel();
  drop_marks_behind(-1);
  set_slot(-1);
  for (size_t g = 0; g < blocks_.size(); ++g) truncate(g, 0);
  length_ = 0;
}

void SequenceState::share(const SequenceState& from) {
  require(cache_ == from.cache_, "sequence: of another model");
  from.check_kept();
  clear();
  for (size_t g = 0; g < blocks_.size(); ++g) {
    const auto count = static_cast<size_t>(blocks_for(from.length_, cache_->block_tokens()));
    blocks_[g].assign(from.blocks_[g].begin(), from.blocks_[g].begin() + static_cast<std::ptrdiff_t>(count));
    for (const int32_t block : blocks_[g])
      if (block >= 0) cache_->group(g).share(block);
  }
  slot_ = from.slot_;
  if (slot_ >= 0) cache_->recurrent().share(slot_);
  length_ = from.length_;
}

}  // namespace saragossa
