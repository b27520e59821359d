#pragma once
// Which rows go to which experts: what the ops of mixtures of experts deal to the workers.

#include <vector>

#include "cpu/linear.h"

namespace saragossa::cpu {

/// The rows [begin, begin + count) of a matrix.
Matrix rows_of(Matrix m, int64_t begin, int64_t count);

/// A matrix of each expert.
struct ExpertMatrices {
  Matrix all;
  int64_t stride = 0, offset = 0, rows = 0;

  ExpertMatrices() = default;
  ExpertMatrices(const ExpertWeight& e, int64_t n)
      : all(matrix_of(e.weight)), stride(e.stride), offset(e.offset), rows(n) {}
  Matrix of(int64_t expert) const { return rows_of(all, expert * stride + offset, rows); }
};

/// Rows that one expert takes at once.
struct ExpertRows {
  int64_t expert = 0;  // count: the shared one
  int64_t begin = 0;   // of the places in order
  int64_t n = 0;
};

/// A place is row * top_k + choice, or places() + row for the shared expert: by ascending expert, each expert's in
/// ascending order, the shared expert last.
class MoePlan {
 public:
  /// Experts get their places `most` at a time.
  void sort(const int32_t* ids, int64_t rows, int64_t top_k, int64_t count, bool shared, int64_t most);

  const std::vector<ExpertRows>& parts() const { return parts_; }
  int64_t total() const { return static_cast<int64_t>(order_.size()); }  // with the shared expert's
  int64_t places() const { return places_; }
  int64_t place(int64_t i) const { return order_[static_cast<size_t>(i)]; }
  /// Where a place stands in order.
  int64_t position(int64_t place) const { return position_[static_cast<size_t>(place)]; }
  int64_t row(int64_t place) const { return place < places_ ? place / top_k_ : place - places_; }
  int64_t top_k() const { return top_k_; }

 private:
  int64_t places_ = 0, top_k_ = 1;
  std::vector<ExpertRows> parts_;
  std::vector<int64_t> first_, order_, position_;
};

}  // namespace saragossa::cpu
