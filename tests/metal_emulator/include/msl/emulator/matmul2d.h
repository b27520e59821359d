// mpp::tensor_ops::matmul2d, as far as a GEMM needs it: destination = left right (+ destination).
//
// Each simdgroup of the scope computes the elements of the destination that it owns, in steps of 16 along k, summed in
// float (of two integers in int) in the order of k. Operands are tensors in memory or, with one simdgroup, cooperative.
#pragma once
namespace mpp {
namespace tensor_ops {

struct matmul2d_descriptor {
  enum class mode { multiply, multiply_accumulate };
  int m, n, k;
  bool transpose_left, transpose_right, relaxed_precision;
  mode matmul_mode;
  constexpr matmul2d_descriptor(int m_, int n_, int k_ = metal::dynamic_extent, bool left = false, bool right = false,
                                bool relaxed = false, mode mode_ = mode::multiply)
      : m(m_),
        n(n_),
        k(k_ == 0 ? metal::dynamic_extent : k_),
        transpose_left(left),
        transpose_right(right),
        relaxed_precision(relaxed),
        matmul_mode(mode_) {}
};

namespace detail {
using namespace metal;
constexpr int step = 16;  // of k

/// An operand as lines along k: element (line, k) of the left is (row, k), of the right (column, k).
template <class Operand, bool k_is_row, class Sum>
EMULATOR_UNSEEN inline void from_lanes(const Operand* const* lanes_of, int k0, int lines, Sum* out) {
  for (int i = 0; i < lines * step; i++) out[i] = 0;
  for (int l = 0; l < 32; l++)
    for (int i = 0; i < Operand::capacity; i++) {
      int row, column;
      Operand::place(l, i, row, column);
      const int line = k_is_row ? column : row, k = (k_is_row ? row : column) - k0;
      if (Operand::valid(l, i) && line < lines && k >= 0 && k < step)
        out[line * step + k] = static_cast<Sum>((*lanes_of[l])[i]);
    }
}
template <class Tensor, bool k_is_row, class Sum>
inline void from_memory(const Tensor& tensor, int k0, int lines, Sum* out) {
  for (int line = 0; line < lines; line++)
    for (int k = 0; k < step; k++) {
      const long column = k_is_row ? line : k0 + k, row = k_is_row ? k0 + k : line;
      out[line * step + k] = tensor.contains(column, row) ? static_cast<Sum>(*tensor.address(column, row)) : Sum(0);
    }
}
EMULATOR_INLINE EMULATOR_UNSEEN float add_product(float x, float y, float sum) { return __builtin_fmaf(x, y, sum); }
EMULATOR_INLINE EMULATOR_UNSEEN int add_product(int x, int y, int sum) { return sum + x * y; }
}  // namespace detail

template <matmul2d_descriptor D, class Scope>
class matmul2d {
  static constexpr int simdgroups = Scope::simdgroups;
  static constexpr int fixed_k = D.k > 0 ? D.k : 16;
  template <class T>
  using element = metal::remove_cv_t<typename metal::remove_reference_t<T>::value_type>;

 public:
  template <class L, class R, class C>
  auto get_left_input_cooperative_tensor() const {
    static_assert(simdgroups == 1, "cooperative inputs need a scope of one simdgroup");
    if constexpr (D.transpose_left)
      return metal::cooperative_tensor<L, D.m, fixed_k, 1>();
    else
      return metal::cooperative_tensor<L, fixed_k, D.m, 1>();
  }
  template <class L, class R, class C>
  auto get_right_input_cooperative_tensor() const {
    static_assert(simdgroups == 1, "cooperative inputs need a scope of one simdgroup");
    if constexpr (D.transpose_right)
      return metal::cooperative_tensor<R, fixed_k, D.n, 1>();
    else
      return metal::cooperative_tensor<R, D.n, fixed_k, 1>();
  }
  template <class L, class R, class C>
  auto get_destination_cooperative_tensor() const {
    return metal::cooperative_tensor<C, D.n, D.m, simdgroups>();
  }

  template <class L, class R, class C>
  void run(L& left, R& right, C& destination, EMULATOR_SITE) const {
    const Operands<L, R, C> operands{&left, &right, &destination, site};
    (void)metal::lanes::together<Run, char>(operands, "matmul2d", site);
  }

 private:
  template <class L, class R, class C>
  struct Operands {
    L* left;
    R* right;
    C* destination;
    EmulatorSite site;
  };

  /// Extent along k: fixed, or of the operand in memory.
  template <class In>
  static int depth(const In& in) {
    if constexpr (D.k > 0)
      return D.k;
    else if constexpr (!metal::is_cooperative<metal::remove_cv_t<metal::remove_reference_t<decltype(*in.left)>>>)
      return static_cast<int>(in.left->get_extent(D.transpose_left ? 1 : 0));
    else
      return fixed_k;
  }

  struct Run {
    template <class L, class R, class C>
    static void run(const Operands<L, R, C>* const* in, char* const* out, uint mask) {
      if (mask != 0xffffffffu) {
        emulator_fault("matmul2d needs all 32 lanes", in[__builtin_ctz(mask)]->site);
        return;
      }
      if (static_cast<int>(emulator_thread()->group->simdgroups) % simdgroups != 0)
        emulator_fault("matmul2d: the threadgroup is no multiple of the scope's simdgroups", in[0]->site);
      using Sum =
          metal::conditional_t<metal::is_integral_v<element<L>> && metal::is_integral_v<element<R>>, int, float>;
      Sum sums[D.m * D.n];
      start(in, sums);
      multiply(in, sums);
      finish(in, sums);
      metal::lanes::give_all(out, mask, char(0));
    }

    /// Elements of the destination that this simdgroup owns: visit(lane, i, row, column).
    template <class Visit>
    static void each_owned(Visit visit) {
      using Owned = metal::cooperative_tensor<float, D.n, D.m, simdgroups>;
      const int first = static_cast<int>(emulator_thread()->simdgroup) % simdgroups * 32;
      for (int l = 0; l < 32; l++)
        for (int i = 0; i < Owned::capacity; i++) {
          int row, column;
          Owned::place(first + l, i, row, column);
          if (row < D.m && column < D.n) visit(l, i, row, column);
        }
    }
    template <class In, class Sum>
    static void start(const In* const* in, Sum* sums) {
      for (int i = 0; i < D.m * D.n; i++) sums[i] = 0;
      if constexpr (D.matmul_mode == matmul2d_descriptor::mode::multiply_accumulate)
        each_owned([&](int l, int i, int row, int column) {
          using C = metal::remove_reference_t<decltype(*in[0]->destination)>;
          Sum& sum = sums[row * D.n + column];
          if constexpr (metal::is_cooperative<C>)
            sum = static_cast<Sum>((*in[l]->destination)[i]);
          else if (in[0]->destination->contains(column, row))
            sum = static_cast<Sum>(*in[0]->destination->address(column, row));
        });
    }
    template <class In, class Sum>
    static void multiply(const In* const* in, Sum* sums) {
      using L = metal::remove_reference_t<decltype(*in[0]->left)>;
      using R = metal::remove_reference_t<decltype(*in[0]->right)>;
      Sum left[D.m * detail::step], right[D.n * detail::step];
      const L* left_of[32];
      const R* right_of[32];
      for (int l = 0; l < 32; l++) left_of[l] = in[l]->left, right_of[l] = in[l]->right;
      const int k_end = depth(*in[0]);
      for (int k0 = 0; k0 < k_end; k0 += detail::step) {
        if constexpr (metal::is_cooperative<L>)
          detail::from_lanes<L, D.transpose_left>(left_of, k0, D.m, left);
        else
          detail::from_memory<L, D.transpose_left>(*left_of[0], k0, D.m, left);
        if constexpr (metal::is_cooperative<R>)
          detail::from_lanes<R, !D.transpose_right>(right_of, k0, D.n, right);
        else
          detail::from_memory<R, !D.transpose_right>(*right_of[0], k0, D.n, right);
        add_products(left, right, k_end - k0 < detail::step ? k_end - k0 : detail::step, sums);
      }
    }
    /// Rows and columns that this simdgroup does not own are summed as well where it has others in them: harmless.
    template <class Sum>
    EMULATOR_UNSEEN static void add_products(const Sum* left, const Sum* right, int ks, Sum* sums) {
      Sum columns[detail::step][D.n];
      for (int k = 0; k < ks; k++)
        for (int j = 0; j < D.n; j++) columns[k][j] = right[j * detail::step + k];
      for (int i = 0; i < D.m; i++)
        for (int k = 0; k < ks; k++) {
          const Sum x = left[i * detail::step + k];
          for (int j = 0; j < D.n; j++) sums[i * D.n + j] = detail::add_product(x, columns[k][j], sums[i * D.n + j]);
        }
    }
    template <class In, class Sum>
    static void finish(const In* const* in, const Sum* sums) {
      each_owned([&](int l, int i, int row, int column) {
        using C = metal::remove_reference_t<decltype(*in[0]->destination)>;
        const auto sum = static_cast<element<C>>(sums[row * D.n + column]);
        if constexpr (metal::is_cooperative<C>)
          (*in[l]->destination)[i] = sum;
        else if (in[0]->destination->contains(column, row))
          *in[0]->destination->address(column, row) = sum;
      });
    }
  };
};
}  // namespace tensor_ops
}  // namespace mpp
