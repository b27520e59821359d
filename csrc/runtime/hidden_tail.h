#pragma once
// The last states of a sequence, for a head that drafts: kept until it has made keys of each.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace saragossa {

/// States of the last positions, from the first that has no pair on. With `lag` 1 a position's pair needs the token
/// behind it, so the last state is always kept; with 0 none is kept once its keys are made.
class HiddenTail {
 public:
  explicit HiddenTail(int64_t lag = 1) : lag_(lag) {}

  /// Positions [0, pairs()) have their keys in the cache.
  int64_t pairs() const { return pairs_; }
  /// States from position pairs() on.
  std::span<const float> pending(int64_t width) const {
    return std::span(values_).subspan(static_cast<size_t>((pairs_ - begin_) * width));
  }
  std::span<const float> last(int64_t width) const {
    return std::span(values_).last(values_.empty() ? 0 : static_cast<size_t>(width));
  }

  void append(std::span<const float> states) { values_.insert(values_.end(), states.begin(), states.end()); }
  /// Keys of all positions up to `pairs` are made.
  void made(int64_t pairs, int64_t width) {
    pairs_ = pairs;
    const int64_t end = begin_ + static_cast<int64_t>(values_.size()) / width;
    const int64_t from = std::min(pairs, end - lag_);
    if (from <= begin_) return;
    values_.erase(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>((from - begin_) * width));
    begin_ = from;
  }
  /// Back to `to` tokens. state: that of position to - 1 if it is known otherwise; it counts where it is wanted and not
  /// here, and is zeros where nobody has it: drafts are worse for a while then, and nothing else.
  void rewind(int64_t to, std::span<const float> state, int64_t width) {
    if (to == 0) return void(*this = HiddenTail(lag_));
    if (to - lag_ < begin_) {
      values_.assign(state.begin(), state.begin() + static_cast<std::ptrdiff_t>(lag_ == 0 ? 0 : state.size()));
      values_.resize(static_cast<size_t>(lag_ * width));
      begin_ = to - lag_;
    } else {
      values_.resize(static_cast<size_t>((to - begin_) * width));
    }
    pairs_ = std::min(pairs_, to - lag_);
  }

 private:
  int64_t lag_, pairs_ = 0, begin_ = 0;
  std::vector<float> values_;
};

}  // namespace saragossa
