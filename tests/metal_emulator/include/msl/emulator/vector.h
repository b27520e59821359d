// vec<T, N>: a wrapper around clang's vectors. The plain ones have swizzles but no constructor float4(a, b, c, d).
#pragma once
#include "swizzle.h"
namespace metal {

// A bool is stored as a byte of 0 or 1.
template <class T>
struct vector_element {
  using type = T;
};
template <>
struct vector_element<bool> {
  using type = unsigned char;
};
template <class T, int N>
struct extended_vector {
  typedef typename vector_element<T>::type type __attribute__((ext_vector_type(N)));
};

template <class T, int N>
struct vec;

/// Makes a vector by converting each component; bool by comparing with zero.
template <class T, int N, class U>
EMULATOR_INLINE constexpr typename extended_vector<T, N>::type convert_elements(vec<U, N> o) {
  using E = typename extended_vector<T, N>::type;
  if constexpr (__is_same(T, bool) && !__is_same(U, bool)) {
    E e{};
    for (int i = 0; i < N; i++) e[i] = o.v[i] != U(0);
    return e;
  } else {
    return __builtin_convertvector(o.v, E);
  }
}

#define EMULATOR_VECTOR_MEMBERS(N)                                                      \
  typedef typename extended_vector<T, N>::type E;                                       \
  using element = typename vector_element<T>::type;                                     \
  using value_type = T;                                                                 \
  vec() = default;                                                                      \
  EMULATOR_INLINE constexpr vec(T s) : v(static_cast<element>(s)) {}                    \
  template <class U>                                                                    \
  EMULATOR_INLINE explicit constexpr vec(vec<U, N> o) : v(convert_elements<T, N>(o)) {} \
  EMULATOR_INLINE static constexpr vec wrap(E e) {                                      \
    vec r(T(0));                                                                        \
    r.v = e;                                                                            \
    return r;                                                                           \
  }                                                                                     \
  EMULATOR_INLINE T& operator[](int i) { return reinterpret_cast<T*>(&v)[i]; }          \
  EMULATOR_INLINE const T& operator[](int i) const { return reinterpret_cast<const T*>(&v)[i]; }

template <class T>
struct vec<T, 2> {
  EMULATOR_VECTOR_MEMBERS(2)
  union {
    E v;
    struct {
      T x, y;
    };
    struct {
      T r, g;
    };
  };
  EMULATOR_INLINE constexpr vec(T a, T b) : v{static_cast<element>(a), static_cast<element>(b)} {}
  EMULATOR_SWIZZLES_2
};

template <class T>
struct vec<T, 3> {
  EMULATOR_VECTOR_MEMBERS(3)
  union {
    E v;
    struct {
      T x, y, z;
    };
    struct {
      T r, g, b;
    };
  };
  EMULATOR_INLINE constexpr vec(T a, T b, T c)
      : v{static_cast<element>(a), static_cast<element>(b), static_cast<element>(c)} {}
  EMULATOR_INLINE constexpr vec(vec<T, 2> a, T c) : v{a.v[0], a.v[1], static_cast<element>(c)} {}
  EMULATOR_INLINE constexpr vec(T a, vec<T, 2> b) : v{static_cast<element>(a), b.v[0], b.v[1]} {}
  EMULATOR_SWIZZLES_3
};

template <class T>
struct vec<T, 4> {
  EMULATOR_VECTOR_MEMBERS(4)
  union {
    E v;
    struct {
      T x, y, z, w;
    };
    struct {
      T r, g, b, a;
    };
  };
  EMULATOR_INLINE constexpr vec(T a0, T a1, T a2, T a3)
      : v{static_cast<element>(a0), static_cast<element>(a1), static_cast<element>(a2), static_cast<element>(a3)} {}
  EMULATOR_INLINE constexpr vec(vec<T, 2> p, vec<T, 2> q) : v{p.v[0], p.v[1], q.v[0], q.v[1]} {}
  EMULATOR_INLINE constexpr vec(vec<T, 2> p, T c, T d) : vec(p, vec<T, 2>(c, d)) {}
  EMULATOR_INLINE constexpr vec(T c, vec<T, 2> p, T d) : v{element(c), p.v[0], p.v[1], element(d)} {}
  EMULATOR_INLINE constexpr vec(T c, T d, vec<T, 2> p) : vec(vec<T, 2>(c, d), p) {}
  EMULATOR_INLINE constexpr vec(vec<T, 3> p, T d) : v{p.v[0], p.v[1], p.v[2], element(d)} {}
  EMULATOR_INLINE constexpr vec(T c, vec<T, 3> p) : v{element(c), p.v[0], p.v[1], p.v[2]} {}
  EMULATOR_SWIZZLES_4
};

// Fragments of cooperative tensors: indexed only.
template <class T>
struct vec<T, 8> {
  EMULATOR_VECTOR_MEMBERS(8)
  E v;
};
template <class T>
struct vec<T, 16> {
  EMULATOR_VECTOR_MEMBERS(16)
  E v;
};
}  // namespace metal
