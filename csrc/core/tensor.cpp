#include "core/tensor.h"

namespace saragossa {

std::string Shape::str() const {
  std::string out = "[";
  for (int i = 0; i < rank_; ++i) out += (i ? ", " : "") + std::to_string((*this)[i]);
  return out + "]";
}

Tensor Tensor::slice(int64_t begin, int64_t count) const {
  require(shape.rank() > 0 && begin >= 0 && count >= 0 && begin + count <= shape[0], "slice: rows ", begin, "+", count,
          " of ", shape);
  Tensor out = *this;
  const int64_t row = shape[0] == 0 ? 0 : nbytes() / shape[0];
  out.offset += begin * row;
  switch (shape.rank()) {
    case 1: out.shape = {count}; break;
    case 2: out.shape = {count, shape[1]}; break;
    case 3: out.shape = {count, shape[1], shape[2]}; break;
    default: out.shape = {count, shape[1], shape[2], shape[3]}; break;
  }
  return out;
}

Tensor Tensor::reshape(Shape to) const {
  require(to.numel() == numel(), "reshape: ", shape, " to ", to);
  Tensor out = *this;
  out.shape = to;
  return out;
}

}  // namespace saragossa
