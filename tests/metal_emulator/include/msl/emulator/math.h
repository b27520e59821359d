// <metal_math>: float and half, scalar and vector. bfloat has no mathematics of its own in Metal: convert to float.
//
// precise:: and fast:: are both the host's functions; with Settings::perturb_fast the results of fast:: are off by a
// few ulp. Plain names mean one or the other, by the math mode (EMULATOR_FAST_MATH).
#pragma once
namespace metal {

/// Up to emulator_perturb_ulp steps up or down, by a hash of the value: the same value always moves the same way.
EMULATOR_INLINE float perturb(float x) {
  if (emulator_perturb_ulp == 0) return x;
  const uint bits = __builtin_bit_cast(uint, x);
  const uint exponent = bits >> 23 & 255;
  if (exponent == 0 || exponent >= 254) return x;
  ulong hash = (bits ^ emulator_perturb_seed) * 0x9E3779B97F4A7C15ul;
  hash = (hash ^ (hash >> 29)) * 0xBF58476D1CE4E5B9ul >> 33;
  const int range = 2 * emulator_perturb_ulp + 1;
  return __builtin_bit_cast(float, bits + static_cast<uint>(static_cast<int>(hash % range) - emulator_perturb_ulp));
}

// A function of one or two floats: float, half (rounded once) and vectors. `wrap` is perturb in fast::.
#define EMULATOR_MATH_1(name, ...)                                       \
  bfloat name(bfloat) = delete; /* Metal has none: convert to float */   \
  EMULATOR_INLINE float name(float x) { return wrap(__VA_ARGS__); }      \
  EMULATOR_INLINE half name(half h) {                                    \
    const float x = static_cast<float>(h);                               \
    return static_cast<half>(__VA_ARGS__);                               \
  }                                                                      \
  template <class T, int N, class = enable_if_t<is_floating_point_v<T>>> \
  EMULATOR_INLINE vec<T, N> name(vec<T, N> a) {                          \
    vec<T, N> r;                                                         \
    for (int i = 0; i < N; i++) r[i] = name(a[i]);                       \
    return r;                                                            \
  }
#define EMULATOR_MATH_2(name, ...)                                           \
  bfloat name(bfloat, bfloat) = delete; /* convert to float */               \
  EMULATOR_INLINE float name(float x, float y) { return wrap(__VA_ARGS__); } \
  EMULATOR_INLINE half name(half h, half k) {                                \
    const float x = static_cast<float>(h), y = static_cast<float>(k);        \
    return static_cast<half>(__VA_ARGS__);                                   \
  }                                                                          \
  template <class T, int N, class = enable_if_t<is_floating_point_v<T>>>     \
  EMULATOR_INLINE vec<T, N> name(vec<T, N> a, vec<T, N> b) {                 \
    vec<T, N> r;                                                             \
    for (int i = 0; i < N; i++) r[i] = name(a[i], b[i]);                     \
    return r;                                                                \
  }

// Functions that differ between fast:: and precise::.
#define EMULATOR_APPROXIMATE                                                                     \
  EMULATOR_MATH_1(exp, __builtin_expf(x))                                                        \
  EMULATOR_MATH_1(exp2, __builtin_exp2f(x))                                                      \
  EMULATOR_MATH_1(exp10, __builtin_powf(10.0f, x))                                               \
  EMULATOR_MATH_1(log, __builtin_logf(x))                                                        \
  EMULATOR_MATH_1(log2, __builtin_log2f(x))                                                      \
  EMULATOR_MATH_1(log10, __builtin_log10f(x))                                                    \
  EMULATOR_MATH_1(sqrt, __builtin_sqrtf(x))                                                      \
  EMULATOR_MATH_1(rsqrt, 1.0f / __builtin_sqrtf(x))                                              \
  EMULATOR_MATH_1(sin, __builtin_sinf(x))                                                        \
  EMULATOR_MATH_1(cos, __builtin_cosf(x))                                                        \
  EMULATOR_MATH_1(tan, __builtin_tanf(x))                                                        \
  EMULATOR_MATH_1(sinpi, static_cast<float>(__builtin_sin(x * double(3.14159265358979323846L)))) \
  EMULATOR_MATH_1(cospi, static_cast<float>(__builtin_cos(x * double(3.14159265358979323846L)))) \
  EMULATOR_MATH_1(tanpi, static_cast<float>(__builtin_tan(x * double(3.14159265358979323846L)))) \
  EMULATOR_MATH_1(sinh, __builtin_sinhf(x))                                                      \
  EMULATOR_MATH_1(cosh, __builtin_coshf(x))                                                      \
  EMULATOR_MATH_1(tanh, __builtin_tanhf(x))                                                      \
  EMULATOR_MATH_1(asin, __builtin_asinf(x))                                                      \
  EMULATOR_MATH_1(acos, __builtin_acosf(x))                                                      \
  EMULATOR_MATH_1(atan, __builtin_atanf(x))                                                      \
  EMULATOR_MATH_1(asinh, __builtin_asinhf(x))                                                    \
  EMULATOR_MATH_1(acosh, __builtin_acoshf(x))                                                    \
  EMULATOR_MATH_1(atanh, __builtin_atanhf(x))                                                    \
  EMULATOR_MATH_2(pow, __builtin_powf(x, y))                                                     \
  EMULATOR_MATH_2(powr, __builtin_powf(x, y))                                                    \
  EMULATOR_MATH_2(atan2, __builtin_atan2f(x, y))                                                 \
  EMULATOR_MATH_2(divide, x / y)

namespace precise {
EMULATOR_INLINE float wrap(float x) { return x; }
EMULATOR_APPROXIMATE
}  // namespace precise
namespace fast {
EMULATOR_INLINE float wrap(float x) { return perturb(x); }
EMULATOR_APPROXIMATE
}  // namespace fast
#if EMULATOR_FAST_MATH
using namespace fast;
#else
using namespace precise;
#endif

// Exact functions.
namespace exact {
EMULATOR_INLINE float wrap(float x) { return x; }
EMULATOR_MATH_1(floor, __builtin_floorf(x))
EMULATOR_MATH_1(ceil, __builtin_ceilf(x))
EMULATOR_MATH_1(trunc, __builtin_truncf(x))
EMULATOR_MATH_1(round, __builtin_roundf(x))
EMULATOR_MATH_1(rint, __builtin_rintf(x))
EMULATOR_MATH_1(fabs, __builtin_fabsf(x))
EMULATOR_MATH_1(fract, __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f))
EMULATOR_MATH_2(fmod, __builtin_fmodf(x, y))
EMULATOR_MATH_2(fmin, __builtin_fminf(x, y))
EMULATOR_MATH_2(fmax, __builtin_fmaxf(x, y))
EMULATOR_MATH_2(fdim, x > y ? x - y : 0.0f)
EMULATOR_MATH_2(copysign, __builtin_copysignf(x, y))
EMULATOR_MATH_2(nextafter, __builtin_nextafterf(x, y))
}  // namespace exact
using namespace exact;

EMULATOR_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
EMULATOR_INLINE half fma(half a, half b, half c) {
  return static_cast<half>(__builtin_fmaf(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c)));
}
template <class T, int N>
EMULATOR_INLINE vec<T, N> fma(vec<T, N> a, vec<T, N> b, vec<T, N> c) {
  vec<T, N> r;
  for (int i = 0; i < N; i++) r[i] = fma(a[i], b[i], c[i]);
  return r;
}

EMULATOR_INLINE float ldexp(float x, int k) { return __builtin_ldexpf(x, k); }
EMULATOR_INLINE half ldexp(half x, int k) { return static_cast<half>(__builtin_ldexpf(static_cast<float>(x), k)); }
EMULATOR_INLINE int ilogb(float x) { return __builtin_ilogbf(x); }
EMULATOR_INLINE float frexp(float x, int& exponent) { return __builtin_frexpf(x, &exponent); }
EMULATOR_INLINE float modf(float x, float& whole) {
  whole = __builtin_truncf(x);
  return __builtin_copysignf(x - whole, x);
}
EMULATOR_INLINE float sincos(float x, float& cosine) {
  cosine = cos(x);
  return sin(x);
}
namespace precise {
EMULATOR_INLINE float sincos(float x, float& cosine) {
  cosine = cos(x);
  return sin(x);
}
}  // namespace precise
namespace fast {
EMULATOR_INLINE float sincos(float x, float& cosine) {
  cosine = cos(x);
  return sin(x);
}
}  // namespace fast
}  // namespace metal
