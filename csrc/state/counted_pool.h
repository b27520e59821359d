#pragma once
// Numbers of equal places that sequences share: who is free, and how many hold each of the others.

#include <cstdint>
#include <mutex>
#include <vector>

#include "device.h"

namespace saragossa {

/// At most `limit` places, which are row i of each tensor of a cache. Has its own lock: a session may go while another
/// one runs. Giving back allocates nothing, so it cannot fail.
class CountedPool {
 public:
  /// name: of a place, for errors.
  CountedPool(const char* name, int64_t limit) : name_(name), limit_(limit) {}

  /// The most that there can be.
  int64_t limit() const { return limit_; }
  int64_t free() const;
  /// Places whose memory is there.
  int64_t allocated() const;

  /// Memory is there for `to` places. The new ones are free.
  void grown(int64_t to);
  /// A place with one reference; -1 where none is free. grow(from): called where all that are there are taken; makes
  /// more and returns how many there are then.
  template <class Grow>
  int32_t take(Grow grow) {
    const std::lock_guard lock(mutex_);
    const auto from = static_cast<int64_t>(references_.size());
    if (free_.empty() && from < limit_) add(grow(from));
    return take_free();
  }
  void share(int32_t place);
  void release(int32_t place);
  bool shared(int32_t place) const;

 private:
  void add(int64_t to);
  int32_t take_free();

  const char* name_;
  int64_t limit_;
  mutable std::mutex mutex_;  // of what follows
  std::vector<int32_t> free_;
  std::vector<int32_t> references_;
};

/// The tensor with more rows, on a device that has done all its work; the first ones as they were.
Tensor with_rows(Device& device, const Tensor& tensor, int64_t rows);

}  // namespace saragossa
