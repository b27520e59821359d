// Tensors and matmul2d as declarations, for the check of address spaces.
//
// C++ for OpenCL is C++17, which has no struct as a template argument: the rewriter makes matmul2d<descriptor, scope>
// into matmul2d<0, scope>, so extents of results are not checked.
#pragma once
namespace metal {
constexpr constant int dynamic_extent = -1;
template <class I, int... E>
struct extents {
  extents() = default;
  template <class... A>
  extents(A...);
};
template <class I, int Rank>
struct dynamic_extents;
template <class I>
struct dynamic_extents<I, 2> {
  using type = extents<I, -1, -1>;
};
template <class I, int Rank>
using dextents = typename dynamic_extents<I, Rank>::type;
struct tensor_inline {};
template <class T, class Extents, class Kind = tensor_inline>
struct tensor {
  T* data;
  tensor(T*, Extents);
  template <class Strides>
  tensor(T*, Extents, Strides);
  template <class A, class B>
  tensor<T, dextents<int, 2>, Kind> slice(A, B) const;
  template <int Columns, int Rows, class A, class B>
  tensor<T, extents<int, Columns, Rows>, Kind> slice(A, B) const;
  int get_extent(int) const;
};
template <class T, class Extents>
tensor(T*, Extents) -> tensor<T, Extents>;
template <class T, class Extents, class Strides>
tensor(T*, Extents, Strides) -> tensor<T, Extents>;

template <int N>
struct execution_simdgroups {};
using execution_simdgroup = execution_simdgroups<1>;

template <class T>
struct cooperative_tensor {
  thread T& operator[](int);
  ushort get_capacity() const;
  bool is_valid_element(int) const;
  bool get_mask(int) const;
  array<int, 2> get_multidimensional_index(int) const;
  template <class Tensor>
  void load(Tensor);
  template <class Tensor>
  void store(Tensor) const;
};
}  // namespace metal

namespace mpp {
namespace tensor_ops {
struct matmul2d_descriptor {
  enum class mode { multiply, multiply_accumulate };
  constexpr matmul2d_descriptor(int, int, int = -1, bool = false, bool = false, bool = false, mode = mode::multiply) {}
};
template <int, class Scope>
struct matmul2d {
  template <class L, class R, class C>
  metal::cooperative_tensor<L> get_left_input_cooperative_tensor() const;
  template <class L, class R, class C>
  metal::cooperative_tensor<R> get_right_input_cooperative_tensor() const;
  template <class L, class R, class C>
  metal::cooperative_tensor<C> get_destination_cooperative_tensor() const;
  template <class L, class R, class C>
  void run(thread L&, thread R&, thread C&) const;
};
}  // namespace tensor_ops
}  // namespace mpp
