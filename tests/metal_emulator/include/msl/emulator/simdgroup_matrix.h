// <metal_simdgroup_matrix>: 8x8 matrices of float, half, bfloat; each lane holds two elements of a row.
//
// Metal does not document which. The usual layout below is the one seen on every GPU so far; with
// Settings::shuffle_cooperative the seed chooses another, so a kernel that relies on one is found out.
#pragma once
namespace metal {
namespace lanes {
/// Row and first column of a lane's two elements.
EMULATOR_INLINE EMULATOR_UNSEEN void matrix_place(int lane, int& row, int& column) {
  if (emulator_cooperative_layout) lane = (lane * 5 + emulator_cooperative_layout) & 31;
  const int quad = lane >> 2;
  row = (quad & 4) + (lane >> 1 & 3);
  column = (quad & 2) * 2 + (lane & 1) * 2;
}
}  // namespace lanes

template <class T, int Columns, int Rows = Columns>
struct simdgroup_matrix {
  static_assert(Columns == 8 && Rows == 8, "simdgroup matrices are 8x8");
  static_assert(is_floating_point_v<T>, "simdgroup matrices hold float, half or bfloat");
  vec<T, 2> elements;

  simdgroup_matrix() = default;
  /// Diagonal.
  EMULATOR_INLINE explicit simdgroup_matrix(T value) {
    int row, column;
    lanes::matrix_place(lanes::self(), row, column);
    elements = vec<T, 2>(row == column ? value : T(0), row == column + 1 ? value : T(0));
  }
  EMULATOR_INLINE vec<T, 2>& thread_elements() { return elements; }
  EMULATOR_INLINE const vec<T, 2>& thread_elements() const { return elements; }
};
using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;

template <class T, int C, int R>
EMULATOR_INLINE simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, C, R> m;
  m.elements = vec<T, 2>(value);
  return m;
}

namespace lanes {
/// All lanes must take part; costs a rendezvous, so only in checked libraries.
EMULATOR_INLINE void must_be_uniform(const char* name, EmulatorSite site) {
#if EMULATOR_INSTRUMENTED
  (void)together<And, bool>(true, name, site);
#else
  (void)name, (void)site;
#endif
}
/// The two elements of this lane in a matrix at `p`.
template <class P>
EMULATOR_INLINE void matrix_addresses(P* p, ulong stride, vec<ulong, 2> origin, bool transpose, P*& first, P*& second) {
  int row, column;
  matrix_place(self(), row, column);
  p += origin.y * stride + origin.x;
  const ulong r = static_cast<ulong>(row), c = static_cast<ulong>(column);
  first = transpose ? p + c * stride + r : p + r * stride + c;
  second = transpose ? first + stride : first + 1;
}
}  // namespace lanes

template <class T>
EMULATOR_INLINE void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, const T* source, ulong elements_per_row = 8,
                                    vec<ulong, 2> origin = vec<ulong, 2>(0ul), bool transpose = false, EMULATOR_SITE) {
  lanes::must_be_uniform("simdgroup_load", site);
  const T *first, *second;
  lanes::matrix_addresses(source, elements_per_row, origin, transpose, first, second);
  m.elements = vec<T, 2>(*first, *second);
}
template <class T>
EMULATOR_INLINE void simdgroup_store(const simdgroup_matrix<T, 8, 8>& m, T* destination, ulong elements_per_row = 8,
                                     vec<ulong, 2> origin = vec<ulong, 2>(0ul), bool transpose = false, EMULATOR_SITE) {
  lanes::must_be_uniform("simdgroup_store", site);
  T *first, *second;
  lanes::matrix_addresses(destination, elements_per_row, origin, transpose, first, second);
  *first = m.elements[0];
  *second = m.elements[1];
}

namespace lanes {
template <class A, class B, class C>
struct Operands {
  vec<A, 2> a;
  vec<B, 2> b;
  vec<C, 2> c;
  EmulatorSite site;
};
/// d = a b + c, summed in float in the order of k.
struct MultiplyAccumulate {
  template <class T>
  EMULATOR_UNSEEN static void spread(float (&m)[8][8], int lane, vec<T, 2> elements) {
    int row, column;
    matrix_place(lane, row, column);
    m[row][column] = static_cast<float>(elements.v[0]);
    m[row][column + 1] = static_cast<float>(elements.v[1]);
  }
  template <class In, class D>
  EMULATOR_UNSEEN static void run(const In* const* in, vec<D, 2>* const* out, uint mask) {
    alignas(32) float a[8][8] = {}, b[8][8] = {}, c[8][8] = {};
    for (int l = 0; l < width; l++) {
      if (!takes_part(mask, l)) continue;
      spread(a, l, in[l]->a);
      spread(b, l, in[l]->b);
      spread(c, l, in[l]->c);
    }
    if (mask != 0xffffffffu) emulator_fault("simdgroup matrices need all 32 lanes", in[__builtin_ctz(mask)]->site);
    for (int i = 0; i < 8; i++)
      for (int k = 0; k < 8; k++)
        for (int j = 0; j < 8; j++) c[i][j] = __builtin_fmaf(a[i][k], b[k][j], c[i][j]);
    for (int l = 0; l < width; l++) {
      if (!takes_part(mask, l)) continue;
      int row, column;
      matrix_place(l, row, column);
      out[l]->v[0] = static_cast<D>(c[row][column]);
      out[l]->v[1] = static_cast<D>(c[row][column + 1]);
    }
  }
};
}  // namespace lanes

template <class D, class A, class B, class C>
EMULATOR_INLINE void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                                   const simdgroup_matrix<B, 8, 8>& b,
                                                   const simdgroup_matrix<C, 8, 8>& c, EMULATOR_SITE) {
  const lanes::Operands<A, B, C> operands{a.elements, b.elements, c.elements, site};
  d.elements = lanes::together<lanes::MultiplyAccumulate, vec<D, 2>>(operands, "simdgroup_multiply_accumulate", site);
}
template <class D, class A, class B>
EMULATOR_INLINE void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                        const simdgroup_matrix<B, 8, 8>& b, EMULATOR_SITE) {
  const lanes::Operands<A, B, float> operands{a.elements, b.elements, vec<float, 2>(0.0f), site};
  d.elements = lanes::together<lanes::MultiplyAccumulate, vec<D, 2>>(operands, "simdgroup_multiply", site);
}
template <class T>
EMULATOR_INLINE simdgroup_matrix<T, 8, 8> operator*(const simdgroup_matrix<T, 8, 8>& a,
                                                    const simdgroup_matrix<T, 8, 8>& b) {
  simdgroup_matrix<T, 8, 8> d;
  simdgroup_multiply(d, a, b);
  return d;
}
}  // namespace metal
