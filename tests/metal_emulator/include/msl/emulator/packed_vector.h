// packed_float3 and the like: aligned as their element. They convert to and from vectors; arithmetic is done there.
#pragma once
namespace metal {

template <class T, int N>
struct packed_elements;
template <class T>
struct packed_elements<T, 2> {
  union {
    T s[2];
    struct {
      T x, y;
    };
  };
};
template <class T>
struct packed_elements<T, 3> {
  union {
    T s[3];
    struct {
      T x, y, z;
    };
  };
};
template <class T>
struct packed_elements<T, 4> {
  union {
    T s[4];
    struct {
      T x, y, z, w;
    };
  };
};

template <class T, int N>
struct packed_vec : packed_elements<T, N> {
  packed_vec() = default;
  EMULATOR_INLINE packed_vec(T a) {
    for (int i = 0; i < N; i++) this->s[i] = a;
  }
  EMULATOR_INLINE packed_vec(vec<T, N> o) {
    for (int i = 0; i < N; i++) this->s[i] = o[i];
  }
  template <class... U, class = enable_if_t<sizeof...(U) == N && (N > 1)>>
  EMULATOR_INLINE packed_vec(U... u) {
    const T values[] = {static_cast<T>(u)...};
    for (int i = 0; i < N; i++) this->s[i] = values[i];
  }
  EMULATOR_INLINE operator vec<T, N>() const {
    vec<T, N> r;
    for (int i = 0; i < N; i++) r[i] = this->s[i];
    return r;
  }
  EMULATOR_INLINE T& operator[](int i) { return this->s[i]; }
  EMULATOR_INLINE const T& operator[](int i) const { return this->s[i]; }
};

#define EMULATOR_PACKED_OPERATOR(op)                                              \
  template <class T, int N>                                                       \
  EMULATOR_INLINE vec<T, N> operator op(packed_vec<T, N> a, packed_vec<T, N> b) { \
    return vec<T, N>(a) op vec<T, N>(b);                                          \
  }                                                                               \
  template <class T, int N>                                                       \
  EMULATOR_INLINE vec<T, N> operator op(packed_vec<T, N> a, vec<T, N> b) {        \
    return vec<T, N>(a) op b;                                                     \
  }                                                                               \
  template <class T, int N>                                                       \
  EMULATOR_INLINE vec<T, N> operator op(vec<T, N> a, packed_vec<T, N> b) {        \
    return a op vec<T, N>(b);                                                     \
  }                                                                               \
  template <class T, int N, class S, class = if_scalar<S>>                        \
  EMULATOR_INLINE vec<T, N> operator op(packed_vec<T, N> a, S b) {                \
    return vec<T, N>(a) op b;                                                     \
  }
EMULATOR_PACKED_OPERATOR(+)
EMULATOR_PACKED_OPERATOR(-)
EMULATOR_PACKED_OPERATOR(*)
EMULATOR_PACKED_OPERATOR(/)
}  // namespace metal
