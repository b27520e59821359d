// Swizzles of vec<T, N>: members `xy`, `wzyx`, .. that read and, where no component repeats, write.
//
// EMULATOR_SWIZZLES_<N> stands in the class body. It walks all names of two, three and four letters; each becomes
//   get_xy(), put_xy(v) and the property xy that stands for them.
// Text with two meanings is not doubled: the letters come as pairs (x, 0).
#pragma once

#define EMULATOR_SWIZZLE_2(a, i, b, j)                                                                          \
  EMULATOR_INLINE vec<T, 2> get_##a##b() const { return vec<T, 2>::wrap(__builtin_shufflevector(v, v, i, j)); } \
  EMULATOR_INLINE void put_##a##b(vec<T, 2> o) {                                                                \
    static_assert(i != j, "a component is written twice");                                                      \
    v[i] = o.v[0];                                                                                              \
    v[j] = o.v[1];                                                                                              \
  }                                                                                                             \
  __declspec(property(get = get_##a##b, put = put_##a##b)) vec<T, 2> a##b;

#define EMULATOR_SWIZZLE_3(a, i, b, j, c, k)                                                                          \
  EMULATOR_INLINE vec<T, 3> get_##a##b##c() const { return vec<T, 3>::wrap(__builtin_shufflevector(v, v, i, j, k)); } \
  EMULATOR_INLINE void put_##a##b##c(vec<T, 3> o) {                                                                   \
    static_assert(i != j && j != k && i != k, "a component is written twice");                                        \
    v[i] = o.v[0];                                                                                                    \
    v[j] = o.v[1];                                                                                                    \
    v[k] = o.v[2];                                                                                                    \
  }                                                                                                                   \
  __declspec(property(get = get_##a##b##c, put = put_##a##b##c)) vec<T, 3> a##b##c;

#define EMULATOR_SWIZZLE_4(a, i, b, j, c, k, d, l)                                            \
  EMULATOR_INLINE vec<T, 4> get_##a##b##c##d() const {                                        \
    return vec<T, 4>::wrap(__builtin_shufflevector(v, v, i, j, k, l));                        \
  }                                                                                           \
  EMULATOR_INLINE void put_##a##b##c##d(vec<T, 4> o) {                                        \
    static_assert((1 << i | 1 << j | 1 << k | 1 << l) == 15, "a component is written twice"); \
    v[i] = o.v[0];                                                                            \
    v[j] = o.v[1];                                                                            \
    v[k] = o.v[2];                                                                            \
    v[l] = o.v[3];                                                                            \
  }                                                                                           \
  __declspec(property(get = get_##a##b##c##d, put = put_##a##b##c##d)) vec<T, 4> a##b##c##d;

// One letter after another: EMULATOR_EACH<depth>_<N>(macro, what stands before the letter). A macro does not expand
// within itself, so each depth has its own.
#define EMULATOR_EACH1_2(M, ...) M(__VA_ARGS__, x, 0) M(__VA_ARGS__, y, 1)
#define EMULATOR_EACH2_2(M, ...) M(__VA_ARGS__, x, 0) M(__VA_ARGS__, y, 1)
#define EMULATOR_EACH3_2(M, ...) M(__VA_ARGS__, x, 0) M(__VA_ARGS__, y, 1)
#define EMULATOR_EACH1_3(M, ...) M(__VA_ARGS__, x, 0) M(__VA_ARGS__, y, 1) M(__VA_ARGS__, z, 2)
#define EMULATOR_EACH2_3(M, ...) M(__VA_ARGS__, x, 0) M(__VA_ARGS__, y, 1) M(__VA_ARGS__, z, 2)
#define EMULATOR_EACH3_3(M, ...) M(__VA_ARGS__, x, 0) M(__VA_ARGS__, y, 1) M(__VA_ARGS__, z, 2)
#define EMULATOR_EACH1_4(M, ...) M(__VA_ARGS__, x, 0) M(__VA_ARGS__, y, 1) M(__VA_ARGS__, z, 2) M(__VA_ARGS__, w, 3)
#define EMULATOR_EACH2_4(M, ...) M(__VA_ARGS__, x, 0) M(__VA_ARGS__, y, 1) M(__VA_ARGS__, z, 2) M(__VA_ARGS__, w, 3)
#define EMULATOR_EACH3_4(M, ...) M(__VA_ARGS__, x, 0) M(__VA_ARGS__, y, 1) M(__VA_ARGS__, z, 2) M(__VA_ARGS__, w, 3)

#define EMULATOR_LENGTH3_OF_2(...) EMULATOR_EACH2_2(EMULATOR_LAST3_2, __VA_ARGS__)
#define EMULATOR_LENGTH3_OF_3(...) EMULATOR_EACH2_3(EMULATOR_LAST3_3, __VA_ARGS__)
#define EMULATOR_LENGTH3_OF_4(...) EMULATOR_EACH2_4(EMULATOR_LAST3_4, __VA_ARGS__)
#define EMULATOR_LAST3_2(...) EMULATOR_EACH1_2(EMULATOR_SWIZZLE_3, __VA_ARGS__)
#define EMULATOR_LAST3_3(...) EMULATOR_EACH1_3(EMULATOR_SWIZZLE_3, __VA_ARGS__)
#define EMULATOR_LAST3_4(...) EMULATOR_EACH1_4(EMULATOR_SWIZZLE_3, __VA_ARGS__)
#define EMULATOR_LENGTH4_OF_2(...) EMULATOR_EACH3_2(EMULATOR_THIRD4_2, __VA_ARGS__)
#define EMULATOR_LENGTH4_OF_3(...) EMULATOR_EACH3_3(EMULATOR_THIRD4_3, __VA_ARGS__)
#define EMULATOR_LENGTH4_OF_4(...) EMULATOR_EACH3_4(EMULATOR_THIRD4_4, __VA_ARGS__)
#define EMULATOR_THIRD4_2(...) EMULATOR_EACH2_2(EMULATOR_LAST4_2, __VA_ARGS__)
#define EMULATOR_THIRD4_3(...) EMULATOR_EACH2_3(EMULATOR_LAST4_3, __VA_ARGS__)
#define EMULATOR_THIRD4_4(...) EMULATOR_EACH2_4(EMULATOR_LAST4_4, __VA_ARGS__)
#define EMULATOR_LAST4_2(...) EMULATOR_EACH1_2(EMULATOR_SWIZZLE_4, __VA_ARGS__)
#define EMULATOR_LAST4_3(...) EMULATOR_EACH1_3(EMULATOR_SWIZZLE_4, __VA_ARGS__)
#define EMULATOR_LAST4_4(...) EMULATOR_EACH1_4(EMULATOR_SWIZZLE_4, __VA_ARGS__)

// All names that begin with one letter.
#define EMULATOR_FROM(N, a, i) \
  EMULATOR_EACH1_##N(EMULATOR_SWIZZLE_2, a, i) EMULATOR_LENGTH3_OF_##N(a, i) EMULATOR_LENGTH4_OF_##N(a, i)
#define EMULATOR_SWIZZLES_2 EMULATOR_FROM(2, x, 0) EMULATOR_FROM(2, y, 1)
#define EMULATOR_SWIZZLES_3 EMULATOR_FROM(3, x, 0) EMULATOR_FROM(3, y, 1) EMULATOR_FROM(3, z, 2)
#define EMULATOR_SWIZZLES_4 EMULATOR_FROM(4, x, 0) EMULATOR_FROM(4, y, 1) EMULATOR_FROM(4, z, 2) EMULATOR_FROM(4, w, 3)
