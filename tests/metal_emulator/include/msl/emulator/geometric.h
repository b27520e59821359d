// <metal_geometric>
#pragma once
namespace metal {
template <class T, int N>
EMULATOR_INLINE T dot(vec<T, N> a, vec<T, N> b) {
  T sum = a[0] * b[0];
  for (int i = 1; i < N; i++) sum += a[i] * b[i];
  return sum;
}
template <class T, int N>
EMULATOR_INLINE T length_squared(vec<T, N> a) {
  return dot(a, a);
}
template <class T, int N>
EMULATOR_INLINE T length(vec<T, N> a) {
  return sqrt(dot(a, a));
}
template <class T, int N>
EMULATOR_INLINE T distance(vec<T, N> a, vec<T, N> b) {
  return length(a - b);
}
template <class T, int N>
EMULATOR_INLINE T distance_squared(vec<T, N> a, vec<T, N> b) {
  return length_squared(a - b);
}
template <class T, int N>
EMULATOR_INLINE vec<T, N> normalize(vec<T, N> a) {
  return a * rsqrt(dot(a, a));
}
template <class T>
EMULATOR_INLINE vec<T, 3> cross(vec<T, 3> a, vec<T, 3> b) {
  return vec<T, 3>(a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]);
}
}  // namespace metal
