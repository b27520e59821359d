// cooperative_tensor: a matrix spread over the lanes of one or more simdgroups.
//
// Where an element lies is told by get_multidimensional_index alone. The matrix is cut into fragments of 16x16, dealt
// to the simdgroups in turn; a lane has eight elements of a fragment. With Settings::shuffle_cooperative the seed moves
// lanes, elements and fragments, so a kernel that assumes a layout is found out.
#pragma once
namespace metal {

/// `T` elements, `Columns` x `Rows`, over `Simdgroups`.
template <class T, int Columns, int Rows, int Simdgroups>
class cooperative_tensor {
  static constexpr int edge = 16, per_lane = 8;
  static constexpr int across = (Columns + edge - 1) / edge, down = (Rows + edge - 1) / edge;
  static constexpr int fragments = (across * down + Simdgroups - 1) / Simdgroups;  // of one simdgroup

 public:
  using element_type = T;
  using value_type = T;
  static constexpr int columns = Columns, rows = Rows, simdgroups = Simdgroups;
  static constexpr int capacity = fragments * per_lane;

  cooperative_tensor() : thread_(emulator_thread()->index % (32 * Simdgroups)) {}

  static constexpr ushort get_capacity() { return capacity; }
  EMULATOR_INLINE T& operator[](int i) { return values_[i]; }
  EMULATOR_INLINE const T& operator[](int i) const { return values_[i]; }
  bool is_valid_element(int i) const { return valid(thread_, i); }
  bool get_mask(int i) const { return valid(thread_, i); }
  /// {column, row}
  array<int, 2> get_multidimensional_index(int i) const {
    int row, column;
    place(thread_, i, row, column);
    return {{column, row}};
  }

  class iterator {
   public:
    iterator(cooperative_tensor* owner, int i) : owner_(owner), i_(i) {}
    T& operator*() const { return (*owner_)[i_]; }
    iterator& operator++() {
      i_++;
      return *this;
    }
    iterator operator++(int) { return iterator(owner_, i_++); }
    bool operator==(const iterator& o) const { return i_ == o.i_; }
    bool operator!=(const iterator& o) const { return i_ != o.i_; }
    array<int, 2> get_multidimensional_index() const { return owner_->get_multidimensional_index(i_); }
    bool is_valid_element() const { return owner_->is_valid_element(i_); }

   private:
    cooperative_tensor* owner_;
    int i_;
  };
  iterator begin() { return iterator(this, 0); }
  iterator end() { return iterator(this, capacity); }

  /// Elements outside the tensor are zero when loaded and dropped when stored.
  template <class Tensor>
  void load(const Tensor& from) {
    for (int i = 0; i < capacity; i++) {
      const auto at = get_multidimensional_index(i);
      const bool inside = is_valid_element(i) && from.contains(at[0], at[1]);
      values_[i] = inside ? static_cast<T>(*from.address(at[0], at[1])) : T(0);
    }
  }
  template <class Tensor>
  void store(const Tensor& to) const {
    for (int i = 0; i < capacity; i++) {
      const auto at = get_multidimensional_index(i);
      if (is_valid_element(i) && to.contains(at[0], at[1]))
        *to.address(at[0], at[1]) = static_cast<typename Tensor::value_type>(values_[i]);
    }
  }

  /// Row and column of element i of a thread.
  EMULATOR_UNSEEN static void place(int thread, int i, int& row, int& column) {
    const int seed = emulator_cooperative_layout;
    int lane = thread & 31, simdgroup = thread >> 5, element = i % per_lane;
    if (seed) {
      lane = (lane * 5 + seed) & 31;
      element ^= seed & 7;
      simdgroup = (simdgroup + seed) % Simdgroups;
    }
    const int fragment = i / per_lane * Simdgroups + simdgroup;
    const int quad = lane >> 2;
    row = fragment / across * edge + ((quad & 4) | (lane >> 1 & 3)) + (element >> 2) * 8;
    column = fragment % across * edge + ((quad & 2) | (lane & 1)) * 4 + element % 4;
  }
  EMULATOR_UNSEEN static bool valid(int thread, int i) {
    int row, column;
    place(thread, i, row, column);
    return row < Rows && column < Columns;
  }

 private:
  int thread_;
  T values_[capacity];
};

template <class T>
constexpr bool is_cooperative = false;
template <class T, int C, int R, int S>
constexpr bool is_cooperative<cooperative_tensor<T, C, R, S>> = true;
}  // namespace metal
