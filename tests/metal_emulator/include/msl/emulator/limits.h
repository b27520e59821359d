// <metal_limits>
#pragma once
namespace metal {
template <class T>
struct numeric_limits {
  static constexpr bool is_specialized = false;
};

#define EMULATOR_INTEGER_LIMITS(T, low, high)                                  \
  template <>                                                                  \
  struct numeric_limits<T> {                                                   \
    static constexpr bool is_specialized = true, is_integer = true;            \
    static constexpr bool is_signed = is_signed_v<T>;                          \
    static constexpr bool has_infinity = false;                                \
    static constexpr int digits = static_cast<int>(sizeof(T) * 8) - is_signed; \
    static constexpr T min() { return low; }                                   \
    static constexpr T max() { return high; }                                  \
    static constexpr T lowest() { return low; }                                \
  };
EMULATOR_INTEGER_LIMITS(char, -128, 127)
EMULATOR_INTEGER_LIMITS(signed char, -128, 127)
EMULATOR_INTEGER_LIMITS(uchar, 0, 255)
EMULATOR_INTEGER_LIMITS(short, -32768, 32767)
EMULATOR_INTEGER_LIMITS(ushort, 0, 65535)
EMULATOR_INTEGER_LIMITS(int, -__INT_MAX__ - 1, __INT_MAX__)
EMULATOR_INTEGER_LIMITS(uint, 0, 0xffffffffu)
EMULATOR_INTEGER_LIMITS(long, -__LONG_MAX__ - 1, __LONG_MAX__)
EMULATOR_INTEGER_LIMITS(ulong, 0, ~0ul)
EMULATOR_INTEGER_LIMITS(bool, false, true)

#define EMULATOR_FLOAT_LIMITS(T, smallest, largest, eps, bits)                         \
  template <>                                                                          \
  struct numeric_limits<T> {                                                           \
    static constexpr bool is_specialized = true, is_integer = false, is_signed = true; \
    static constexpr bool has_infinity = true, has_quiet_NaN = true;                   \
    static constexpr int digits = bits;                                                \
    static constexpr T min() { return static_cast<T>(smallest); }                      \
    static constexpr T max() { return static_cast<T>(largest); }                       \
    static constexpr T lowest() { return static_cast<T>(-largest); }                   \
    static constexpr T epsilon() { return static_cast<T>(eps); }                       \
    static constexpr T infinity() { return static_cast<T>(__builtin_inff()); }         \
    static constexpr T quiet_NaN() { return static_cast<T>(__builtin_nanf("")); }      \
  };
EMULATOR_FLOAT_LIMITS(float, 1.17549435e-38f, 3.40282347e+38f, 1.19209290e-7f, 24)
EMULATOR_FLOAT_LIMITS(half, 6.103515625e-5f, 65504.f, 9.765625e-4f, 11)
EMULATOR_FLOAT_LIMITS(bfloat, 1.17549435e-38f, 3.38953139e+38f, 7.8125e-3f, 8)
}  // namespace metal
