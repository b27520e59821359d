#pragma once
// A typed view of a device buffer: contiguous, row-major, at most four dimensions.

#include <array>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <string>

#include "core/dtype.h"
#include "core/errors.h"

namespace saragossa {

class Buffer;

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    require(dims.size() <= 4, "shape: ", dims.size(), " dimensions, at most 4");
    for (const int64_t d : dims) dims_[rank_++] = d;
  }
  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[static_cast<size_t>(i)];
    return n;
  }
  /// All dimensions but the last, as rows.
  int64_t rows() const { return last() == 0 ? 0 : numel() / last(); }
  int64_t last() const { return rank_ == 0 ? 1 : dims_[static_cast<size_t>(rank_ - 1)]; }
  bool operator==(const Shape& o) const {  // the default one calls memcmp
    return rank_ == o.rank_ && dims_[0] == o.dims_[0] && dims_[1] == o.dims_[1] && dims_[2] == o.dims_[2] &&
           dims_[3] == o.dims_[3];
  }
  std::string str() const;

 private:
  std::array<int64_t, 4> dims_{};
  int rank_ = 0;
};

/// For messages: `require(ok, ..., shape)` makes no text where all is well, `shape.str()` would.
inline std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.str(); }

struct Tensor {
  std::shared_ptr<Buffer> buffer;  // null: no tensor (an optional argument left out)
  int64_t offset = 0;              // bytes
  DType dtype = DType::f32;
  Shape shape;

  explicit operator bool() const { return buffer != nullptr; }
  int64_t numel() const { return shape.numel(); }
  int64_t nbytes() const { return numel() * size_of(dtype); }
  /// Rows [begin, begin + count) along the first dimension.
  Tensor slice(int64_t begin, int64_t count) const;
  /// The same bytes under another shape of as many elements.
  Tensor reshape(Shape to) const;
};

}  // namespace saragossa
