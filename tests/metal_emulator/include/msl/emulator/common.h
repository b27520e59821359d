// <metal_common> and the minima and maxima of all types.
#pragma once
namespace metal {

#define EMULATOR_INTEGER_COMMON(T)                                    \
  EMULATOR_INLINE constexpr T max(T a, T b) { return a < b ? b : a; } \
  EMULATOR_INLINE constexpr T min(T a, T b) { return b < a ? b : a; } \
  EMULATOR_INLINE constexpr T clamp(T x, T low, T high) { return min(max(x, low), high); }
EMULATOR_INTEGER_COMMON(char)
EMULATOR_INTEGER_COMMON(signed char)
EMULATOR_INTEGER_COMMON(uchar)
EMULATOR_INTEGER_COMMON(short)
EMULATOR_INTEGER_COMMON(ushort)
EMULATOR_INTEGER_COMMON(int)
EMULATOR_INTEGER_COMMON(uint)
EMULATOR_INTEGER_COMMON(long)
EMULATOR_INTEGER_COMMON(ulong)

// max and min give the other operand where one is NaN.
#define EMULATOR_FLOAT_COMMON(T)                                                                                  \
  EMULATOR_INLINE constexpr T max(T a, T b) { return a != a ? b : (b != b || !(a < b) ? a : b); }                 \
  EMULATOR_INLINE constexpr T min(T a, T b) { return a != a ? b : (b != b || !(b < a) ? a : b); }                 \
  EMULATOR_INLINE constexpr T clamp(T x, T low, T high) { return min(max(x, low), high); }                        \
  EMULATOR_INLINE T abs(T x) { return fabs(x); }                                                                  \
  EMULATOR_INLINE constexpr T saturate(T x) { return clamp(x, T(0), T(1)); }                                      \
  EMULATOR_INLINE constexpr T mix(T a, T b, T t) { return a + (b - a) * t; }                                      \
  EMULATOR_INLINE constexpr T step(T edge, T x) { return x < edge ? T(0) : T(1); }                                \
  EMULATOR_INLINE constexpr T sign(T x) { return x > T(0) ? T(1) : (x < T(0) ? T(-1) : (x == T(0) ? x : T(0))); } \
  EMULATOR_INLINE constexpr T smoothstep(T low, T high, T x) {                                                    \
    const T t = saturate((x - low) / (high - low));                                                               \
    return t * t * (T(3) - T(2) * t);                                                                             \
  }                                                                                                               \
  EMULATOR_INLINE constexpr T max3(T a, T b, T c) { return max(a, max(b, c)); }                                   \
  EMULATOR_INLINE constexpr T min3(T a, T b, T c) { return min(a, min(b, c)); }                                   \
  EMULATOR_INLINE constexpr T median3(T a, T b, T c) { return max(min(a, b), min(max(a, b), c)); }
EMULATOR_FLOAT_COMMON(float)
EMULATOR_FLOAT_COMMON(half)

// Component by component; a scalar stands for all components.
#define EMULATOR_BY_COMPONENT_1(name)              \
  template <class T, int N>                        \
  EMULATOR_INLINE vec<T, N> name(vec<T, N> a) {    \
    vec<T, N> r;                                   \
    for (int i = 0; i < N; i++) r[i] = name(a[i]); \
    return r;                                      \
  }
#define EMULATOR_BY_COMPONENT_2(name)                        \
  template <class T, int N>                                  \
  EMULATOR_INLINE vec<T, N> name(vec<T, N> a, vec<T, N> b) { \
    vec<T, N> r;                                             \
    for (int i = 0; i < N; i++) r[i] = name(a[i], b[i]);     \
    return r;                                                \
  }                                                          \
  template <class T, int N>                                  \
  EMULATOR_INLINE vec<T, N> name(vec<T, N> a, T b) {         \
    return name(a, vec<T, N>(b));                            \
  }                                                          \
  template <class T, int N>                                  \
  EMULATOR_INLINE vec<T, N> name(T a, vec<T, N> b) {         \
    return name(vec<T, N>(a), b);                            \
  }
EMULATOR_BY_COMPONENT_1(abs)
EMULATOR_BY_COMPONENT_1(sign)
EMULATOR_BY_COMPONENT_1(saturate)
EMULATOR_BY_COMPONENT_2(max)
EMULATOR_BY_COMPONENT_2(min)
EMULATOR_BY_COMPONENT_2(step)
template <class T, int N>
EMULATOR_INLINE vec<T, N> clamp(vec<T, N> x, vec<T, N> low, vec<T, N> high) {
  return min(max(x, low), high);
}
template <class T, int N>
EMULATOR_INLINE vec<T, N> clamp(vec<T, N> x, T low, T high) {
  return min(max(x, vec<T, N>(low)), vec<T, N>(high));
}
template <class T, int N>
EMULATOR_INLINE vec<T, N> mix(vec<T, N> a, vec<T, N> b, vec<T, N> t) {
  return a + (b - a) * t;
}
template <class T, int N>
EMULATOR_INLINE vec<T, N> mix(vec<T, N> a, vec<T, N> b, T t) {
  return a + (b - a) * t;
}
template <class T, int N>
EMULATOR_INLINE vec<T, N> smoothstep(vec<T, N> low, vec<T, N> high, vec<T, N> x) {
  const vec<T, N> t = saturate((x - low) / (high - low));
  return t * t * (T(3) - T(2) * t);
}
}  // namespace metal
