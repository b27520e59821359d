// <metal_relational>
#pragma once
namespace metal {

#define EMULATOR_CLASSIFY(name, ...)                         \
  EMULATOR_INLINE bool name(float x) { return __VA_ARGS__; } \
  EMULATOR_INLINE bool name(half h) {                        \
    const float x = static_cast<float>(h);                   \
    return __VA_ARGS__;                                      \
  }                                                          \
  template <class T, int N>                                  \
  EMULATOR_INLINE vec<bool, N> name(vec<T, N> a) {           \
    vec<bool, N> r(false);                                   \
    for (int i = 0; i < N; i++) r.v[i] = name(a[i]);         \
    return r;                                                \
  }
// By the bits: no math mode may reason them away.
EMULATOR_CLASSIFY(isnan, (__builtin_bit_cast(uint, x) & 0x7fffffffu) > 0x7f800000u)
EMULATOR_CLASSIFY(isinf, (__builtin_bit_cast(uint, x) & 0x7fffffffu) == 0x7f800000u)
EMULATOR_CLASSIFY(isfinite, (__builtin_bit_cast(uint, x) & 0x7fffffffu) < 0x7f800000u)
EMULATOR_CLASSIFY(isnormal, (__builtin_bit_cast(uint, x) & 0x7fffffffu) - 0x00800000u < 0x7f000000u)
EMULATOR_CLASSIFY(signbit, __builtin_bit_cast(uint, x) >> 31 != 0)

/// b where c, else a.
template <class T>
EMULATOR_INLINE T select(T a, T b, bool c) {
  return c ? b : a;
}
template <class T, int N>
EMULATOR_INLINE vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<bool, N> c) {
  vec<T, N> r;
  for (int i = 0; i < N; i++) r[i] = c.v[i] ? b[i] : a[i];
  return r;
}
template <int N>
EMULATOR_INLINE bool any(vec<bool, N> a) {
  bool r = false;
  for (int i = 0; i < N; i++) r |= a.v[i] != 0;
  return r;
}
template <int N>
EMULATOR_INLINE bool all(vec<bool, N> a) {
  bool r = true;
  for (int i = 0; i < N; i++) r &= a.v[i] != 0;
  return r;
}
EMULATOR_INLINE bool any(bool a) { return a; }
EMULATOR_INLINE bool all(bool a) { return a; }
}  // namespace metal
