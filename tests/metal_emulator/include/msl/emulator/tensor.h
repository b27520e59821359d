// <metal_tensor>: views of memory of rank one and two. Extent and stride 0 belong to the fastest dimension (columns).
#pragma once
namespace metal {

constexpr int dynamic_extent = -1;

template <class I, int... E>
struct extents {
  using index_type = I;
  static constexpr int rank() { return sizeof...(E); }
  I values[sizeof...(E)];

  constexpr extents() : values{static_cast<I>(E == dynamic_extent ? 0 : E)...} {}
  /// All extents, or only the dynamic ones.
  template <class... A, class = enable_if_t<(sizeof...(A) > 0)>>
  constexpr extents(A... a) : extents() {
    const I given[] = {static_cast<I>(a)...};
    constexpr int fixed[] = {E...};
    int next = 0;
    for (int i = 0; i < rank(); i++)
      if (sizeof...(A) == sizeof...(E) || fixed[i] == dynamic_extent) {
        const I value = given[next++];
        if (fixed[i] == dynamic_extent) values[i] = value;
      }
  }
  constexpr I extent(int i) const { return values[i]; }
  static constexpr int static_extent(int i) {
    constexpr int fixed[] = {E...};
    return fixed[i];
  }
};

template <class I, int Rank>
struct dynamic_extents;
template <class I>
struct dynamic_extents<I, 1> {
  using type = extents<I, dynamic_extent>;
};
template <class I>
struct dynamic_extents<I, 2> {
  using type = extents<I, dynamic_extent, dynamic_extent>;
};
template <class I, int Rank>
using dextents = typename dynamic_extents<I, Rank>::type;

struct tensor_inline {};
struct tensor_handle {};
struct tensor_offset {};

template <class T, class Extents, class Kind = tensor_inline>
class tensor {
  static_assert(Extents::rank() == 2, "the emulator has tensors of rank 2 only");
  static_assert(!is_same_v<Kind, tensor_handle>,
                "the emulator has no tensor bindings: build tensor_inline from a buffer");

 public:
  using element_type = T;
  using value_type = remove_cv_t<T>;
  using extents_type = Extents;
  using index_type = typename Extents::index_type;

  tensor(T* data, Extents e) : data_(data), extents_(e), strides_{1, static_cast<long>(e.values[0])} {}
  template <class Strides>
  tensor(T* data, Extents e, Strides strides)
      : data_(data), extents_(e), strides_{static_cast<long>(strides[0]), static_cast<long>(strides[1])} {}

  static constexpr int get_rank() { return 2; }
  index_type get_extent(int i) const { return extents_.values[i]; }
  index_type get_stride(int i) const { return static_cast<index_type>(strides_[i]); }

  /// The view from (column, row) on; with fixed extents where they are named.
  template <class A, class B>
  auto slice(A column, B row) const {
    using E = dextents<index_type, 2>;
    return cut<E>(column, row, E(extents_.values[0] - column, extents_.values[1] - row));
  }
  template <int Columns, int Rows, class A, class B>
  auto slice(A column, B row) const {
    using E = extents<index_type, Columns, Rows>;
    return cut<E>(column, row, E(extents_.values[0] - column, extents_.values[1] - row));
  }
  template <class Index>
  T& operator[](Index i) const {
    return *address(i[0], i[1]);
  }

  // For matmul2d.
  bool contains(long column, long row) const {
    return column >= 0 && row >= 0 && column < extents_.values[0] && row < extents_.values[1];
  }
  T* address(long column, long row) const { return data_ + column * strides_[0] + row * strides_[1]; }

 private:
  template <class E, class A, class B>
  auto cut(A column, B row, E extents) const {
    const array<long, 2> strides = {{strides_[0], strides_[1]}};
    return tensor<T, E, Kind>(address(column, row), extents, strides);
  }

  T* data_;
  Extents extents_;
  long strides_[2];
};
template <class T, class Extents>
tensor(T*, Extents) -> tensor<T, Extents>;
template <class T, class Extents, class Strides>
tensor(T*, Extents, Strides) -> tensor<T, Extents>;

template <int N>
struct execution_simdgroups {
  static constexpr int simdgroups = N;
};
using execution_simdgroup = execution_simdgroups<1>;
template <int N>
struct execution_threads;  // the emulator runs matmul2d by simdgroups only
using execution_thread = execution_threads<1>;
}  // namespace metal
