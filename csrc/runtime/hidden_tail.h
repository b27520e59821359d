#pragma once
// The last states of a sequence, for the MTP head: kept until the head has made a pair of each.

#include <cstdint>
#include <span>
#include <vector>

namespace saragossa {

/// States of positions [end() - count, end()), the last one always among them; the head has pairs of those in front of
/// `pairs`.
class HiddenTail {
 public:
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
  /// Pairs of all positions up to `pairs` are made; of the states in front of it only the last one stays.
  void made(int64_t pairs, int64_t width) {
    pairs_ = pairs;
    const int64_t end = begin_ + static_cast<int64_t>(values_.size()) / width;
    const int64_t from = pairs < end ? pairs : end - 1;
    if (from <= begin_) return;
    values_.erase(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>((from - begin_) * width));
    begin_ = from;
  }
  /// Back to `to` tokens. state: that of position to - 1 if it is known otherwise; it counts where it is not here, and
  /// is zeros where nobody has it: drafts are worse for a while then, and nothing else.
  void rewind(int64_t to, std::span<const float> state, int64_t width) {
    if (to == 0) return void(*this = {});
    if (to - 1 < begin_) {
      values_.assign(state.begin(), state.end());
      values_.resize(static_cast<size_t>(width));
      begin_ = to - 1;
    } else {
      values_.resize(static_cast<size_t>((to - begin_) * width));
    }
    if (pairs_ > to - 1) pairs_ = to - 1;
  }

 private:
  int64_t pairs_ = 0, begin_ = 0;
  std::vector<float> values_;
};

}  // namespace saragossa
