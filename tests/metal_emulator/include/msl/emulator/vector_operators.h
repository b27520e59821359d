// Component-wise operators. A scalar operand takes part in every component, converted to the vector's type.
#pragma once
namespace metal {

template <class S>
using if_scalar = enable_if_t<is_arithmetic_v<S>>;

#define EMULATOR_OPERATOR(op)                                                 \
  template <class T, int N>                                                   \
  EMULATOR_INLINE constexpr vec<T, N> operator op(vec<T, N> a, vec<T, N> b) { \
    return vec<T, N>::wrap(a.v op b.v);                                       \
  }                                                                           \
  template <class T, int N, class S, class = if_scalar<S>>                    \
  EMULATOR_INLINE constexpr vec<T, N> operator op(vec<T, N> a, S b) {         \
    return a op vec<T, N>(static_cast<T>(b));                                 \
  }                                                                           \
  template <class T, int N, class S, class = if_scalar<S>>                    \
  EMULATOR_INLINE constexpr vec<T, N> operator op(S a, vec<T, N> b) {         \
    return vec<T, N>(static_cast<T>(a)) op b;                                 \
  }                                                                           \
  template <class T, int N, class S>                                          \
  EMULATOR_INLINE vec<T, N>& operator op## = (vec<T, N> & a, const S& b) {    \
    a = a op b;                                                               \
    return a;                                                                 \
  }
EMULATOR_OPERATOR(+)
EMULATOR_OPERATOR(-)
EMULATOR_OPERATOR(*)
EMULATOR_OPERATOR(/)
EMULATOR_OPERATOR(%)
EMULATOR_OPERATOR(&)
EMULATOR_OPERATOR(|)
EMULATOR_OPERATOR(^)
EMULATOR_OPERATOR(<<)
EMULATOR_OPERATOR(>>)

#define EMULATOR_COMPARISON(op)                                                  \
  template <class T, int N>                                                      \
  EMULATOR_INLINE constexpr vec<bool, N> operator op(vec<T, N> a, vec<T, N> b) { \
    auto mask = (a.v op b.v);                                                    \
    vec<bool, N> r(false);                                                       \
    for (int i = 0; i < N; i++) r.v[i] = mask[i] ? 1 : 0;                        \
    return r;                                                                    \
  }                                                                              \
  template <class T, int N, class S, class = if_scalar<S>>                       \
  EMULATOR_INLINE constexpr vec<bool, N> operator op(vec<T, N> a, S b) {         \
    return a op vec<T, N>(static_cast<T>(b));                                    \
  }                                                                              \
  template <class T, int N, class S, class = if_scalar<S>>                       \
  EMULATOR_INLINE constexpr vec<bool, N> operator op(S a, vec<T, N> b) {         \
    return vec<T, N>(static_cast<T>(a)) op b;                                    \
  }
EMULATOR_COMPARISON(==)
EMULATOR_COMPARISON(!=)
EMULATOR_COMPARISON(<)
EMULATOR_COMPARISON(<=)
EMULATOR_COMPARISON(>)
EMULATOR_COMPARISON(>=)

template <class T, int N>
EMULATOR_INLINE constexpr vec<T, N> operator-(vec<T, N> a) {
  return vec<T, N>::wrap(-a.v);
}
template <class T, int N>
EMULATOR_INLINE constexpr vec<T, N> operator+(vec<T, N> a) {
  return a;
}
template <class T, int N>
EMULATOR_INLINE constexpr vec<T, N> operator~(vec<T, N> a) {
  return vec<T, N>::wrap(~a.v);
}
template <class T, int N>
EMULATOR_INLINE vec<T, N>& operator++(vec<T, N>& a) {
  return a += T(1);
}
template <class T, int N>
EMULATOR_INLINE vec<T, N>& operator--(vec<T, N>& a) {
  return a -= T(1);
}
template <int N>
EMULATOR_INLINE constexpr vec<bool, N> operator!(vec<bool, N> a) {
  return a ^ vec<bool, N>(true);
}
template <int N>
EMULATOR_INLINE constexpr vec<bool, N> operator&&(vec<bool, N> a, vec<bool, N> b) {
  return a & b;
}
template <int N>
EMULATOR_INLINE constexpr vec<bool, N> operator||(vec<bool, N> a, vec<bool, N> b) {
  return a | b;
}
}  // namespace metal
