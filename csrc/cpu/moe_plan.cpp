#include "cpu/moe_plan.h"

#include <algorithm>

namespace saragossa::cpu {

Matrix rows_of(Matrix m, int64_t begin, int64_t count) {
  m.out = count;
  m.data += begin * row_bytes_of(m);
  if (m.bits) {
    const int64_t scales = m.in / m.group * size_of(m.dtype);
    m.scales += begin * scales;
    m.biases += begin * scales;
  }
  return m;
}

void MoePlan::sort(const int32_t* ids, int64_t rows, int64_t top_k, int64_t count, bool shared, int64_t most) {
  places_ = rows * top_k;
  top_k_ = top_k;
  first_.assign(static_cast<size_t>(count) + 1, 0);
  for (int64_t p = 0; p < places_; ++p) {
    require(ids[p] >= 0 && ids[p] < count, "moe: expert ", ids[p], " of ", count);
    ++first_[static_cast<size_t>(ids[p]) + 1];
  }
  parts_.clear();
  const auto cut = [&](int64_t expert, int64_t begin, int64_t end) {
    for (; begin < end; begin += most) parts_.push_back({expert, begin, std::min(most, end - begin)});
  };
  for (size_t e = 0; e < static_cast<size_t>(count); ++e) {
    first_[e + 1] += first_[e];
    cut(static_cast<int64_t>(e), first_[e], first_[e + 1]);
  }
  order_.resize(static_cast<size_t>(places_ + (shared ? rows : 0)));
  position_.resize(order_.size());
  for (int64_t p = 0; p < places_; ++p) {
    int64_t& at = first_[static_cast<size_t>(ids[p])];
    order_[static_cast<size_t>(at)] = p;
    position_[static_cast<size_t>(p)] = at++;
  }
  if (!shared) return;
  for (int64_t i = places_; i < places_ + rows; ++i)
    order_[static_cast<size_t>(i)] = position_[static_cast<size_t>(i)] = i;
  cut(count, places_, places_ + rows);
}

}  // namespace saragossa::cpu
