#include "state/counted_pool.h"

#include <cstring>

#include "encoder.h"

namespace saragossa {

int64_t CountedPool::free() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(free_.size()) + limit_ - static_cast<int64_t>(references_.size());
}

int64_t CountedPool::allocated() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(references_.size());
}

void CountedPool::grown(int64_t to) {
  const std::lock_guard lock(mutex_);
  add(to);
}

void CountedPool::add(int64_t to) {
  const auto from = static_cast<int64_t>(references_.size());
  free_.reserve(static_cast<size_t>(to));
  references_.resize(static_cast<size_t>(to), 0);
  // Lowest place first: touched pages stay together.
  for (int64_t place = to - 1; place >= from; --place) free_.push_back(static_cast<int32_t>(place));
}

int32_t CountedPool::take_free() {
  if (free_.empty()) return -1;
  const int32_t place = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(place)] = 1;
  return place;
}

void CountedPool::share(int32_t place) {
  const std::lock_guard lock(mutex_);
  ++references_[static_cast<size_t>(place)];
}

void CountedPool::release(int32_t place) {
  const std::lock_guard lock(mutex_);
  int32_t& references = references_[static_cast<size_t>(place)];
  require(references > 0, name_, " ", place, " released twice");
  if (--references == 0) free_.push_back(place);
}

bool CountedPool::shared(int32_t place) const {
  const std::lock_guard lock(mutex_);
  return references_[static_cast<size_t>(place)] > 1;
}

Tensor with_rows(Device& device, const Tensor& tensor, int64_t rows) {
  const Shape& was = tensor.shape;
  const Shape shape = was.rank() == 3 ? Shape{rows, was[1], was[2]} : Shape{rows, was[1], was[2], was[3]};
  const Tensor out = device.tensor(tensor.dtype, shape, true);
  std::memcpy(raw_data<uint8_t>(out), raw_data<uint8_t>(tensor), static_cast<size_t>(tensor.nbytes()));
  return out;
}

}  // namespace saragossa
