// <metal_integer>
#pragma once
namespace metal {

template <class T>
using if_integer = enable_if_t<is_integral_v<T>>;

// A function of integer scalars, and of vectors component by component.
#define EMULATOR_INTEGER_1(name)                   \
  template <class T, int N>                        \
  EMULATOR_INLINE vec<T, N> name(vec<T, N> a) {    \
    vec<T, N> r;                                   \
    for (int i = 0; i < N; i++) r[i] = name(a[i]); \
    return r;                                      \
  }
#define EMULATOR_INTEGER_2(name)                             \
  template <class T, int N>                                  \
  EMULATOR_INLINE vec<T, N> name(vec<T, N> a, vec<T, N> b) { \
    vec<T, N> r;                                             \
    for (int i = 0; i < N; i++) r[i] = name(a[i], b[i]);     \
    return r;                                                \
  }

template <class T, class = if_integer<T>>
EMULATOR_INLINE constexpr T abs(T x) {
  return x < T(0) ? static_cast<T>(-x) : x;
}
template <class T, class = if_integer<T>>
EMULATOR_INLINE constexpr make_unsigned_t<T> absdiff(T a, T b) {
  using U = make_unsigned_t<T>;
  return a < b ? static_cast<U>(static_cast<U>(b) - static_cast<U>(a))
               : static_cast<U>(static_cast<U>(a) - static_cast<U>(b));
}
template <class T, class = if_integer<T>>
EMULATOR_INLINE constexpr T popcount(T x) {
  return static_cast<T>(__builtin_popcountl(static_cast<make_unsigned_t<T>>(x)));
}
template <class T, class = if_integer<T>>
EMULATOR_INLINE constexpr T clz(T x) {
  constexpr int width = sizeof(T) * 8;
  return static_cast<T>(x == 0 ? width : __builtin_clzl(static_cast<make_unsigned_t<T>>(x)) - (64 - width));
}
template <class T, class = if_integer<T>>
EMULATOR_INLINE constexpr T ctz(T x) {
  return static_cast<T>(x == 0 ? static_cast<int>(sizeof(T) * 8) : __builtin_ctzl(static_cast<make_unsigned_t<T>>(x)));
}
template <class T, class = if_integer<T>>
EMULATOR_INLINE constexpr T reverse_bits(T x) {
  make_unsigned_t<T> in = static_cast<make_unsigned_t<T>>(x), out = 0;
  for (uint i = 0; i < sizeof(T) * 8; i++) out = static_cast<make_unsigned_t<T>>(out << 1 | (in >> i & 1));
  return static_cast<T>(out);
}
/// `bits` bits from `offset`; a signed type extends the sign.
template <class T, class = if_integer<T>>
EMULATOR_INLINE constexpr T extract_bits(T x, uint offset, uint bits) {
  constexpr uint width = sizeof(T) * 8;
  if (bits == 0) return 0;
  return static_cast<T>(static_cast<T>(static_cast<make_unsigned_t<T>>(x) << (width - offset - bits)) >>
                        (width - bits));
}
template <class T, class = if_integer<T>>
EMULATOR_INLINE constexpr T insert_bits(T base, T insert, uint offset, uint bits) {
  using U = make_unsigned_t<T>;
  if (bits == 0) return base;
  const U mask = static_cast<U>(static_cast<U>(static_cast<U>(~U(0)) >> (sizeof(T) * 8 - bits)) << offset);
  return static_cast<T>((static_cast<U>(base) & ~mask) | (static_cast<U>(static_cast<U>(insert) << offset) & mask));
}
template <class T, class = if_integer<T>>
EMULATOR_INLINE constexpr T rotate(T x, T n) {
  using U = make_unsigned_t<T>;
  constexpr uint width = sizeof(T) * 8;
  const uint k = static_cast<uint>(n) & (width - 1);
  const U u = static_cast<U>(x);
  return static_cast<T>(k ? static_cast<U>(u << k | u >> (width - k)) : u);
}
template <class T, class = if_integer<T>>
EMULATOR_INLINE constexpr T mulhi(T a, T b) {
  if constexpr (is_signed_v<T>)
    return static_cast<T>((static_cast<__int128>(a) * b) >> (sizeof(T) * 8));
  else
    return static_cast<T>((static_cast<unsigned __int128>(a) * b) >> (sizeof(T) * 8));
}
template <class T, class = if_integer<T>>
EMULATOR_INLINE constexpr T madhi(T a, T b, T c) {
  return mulhi(a, b) + c;
}
template <class T, class = if_integer<T>>
EMULATOR_INLINE constexpr T addsat(T a, T b) {
  T r = 0;
  if (!__builtin_add_overflow(a, b, &r)) return r;
  return is_signed_v<T> && a < T(0) ? numeric_limits<T>::min() : numeric_limits<T>::max();
}
template <class T, class = if_integer<T>>
EMULATOR_INLINE constexpr T subsat(T a, T b) {
  T r = 0;
  if (!__builtin_sub_overflow(a, b, &r)) return r;
  return !is_signed_v<T> || a < T(0) ? numeric_limits<T>::min() : numeric_limits<T>::max();
}
template <class T, class = if_integer<T>>
EMULATOR_INLINE constexpr T hadd(T a, T b) {
  return static_cast<T>((a >> 1) + (b >> 1) + (a & b & 1));
}
template <class T, class = if_integer<T>>
EMULATOR_INLINE constexpr T rhadd(T a, T b) {
  return static_cast<T>((a >> 1) + (b >> 1) + ((a | b) & 1));
}
// 24-bit arithmetic: defined for operands of 24 bits.
template <class T, class = if_integer<T>>
EMULATOR_INLINE constexpr T mul24(T a, T b) {
  return a * b;
}
template <class T, class = if_integer<T>>
EMULATOR_INLINE constexpr T mad24(T a, T b, T c) {
  return a * b + c;
}
EMULATOR_INTEGER_1(popcount)
EMULATOR_INTEGER_1(clz)
EMULATOR_INTEGER_1(ctz)
EMULATOR_INTEGER_1(reverse_bits)
EMULATOR_INTEGER_2(mulhi)
EMULATOR_INTEGER_2(rotate)
EMULATOR_INTEGER_2(addsat)
EMULATOR_INTEGER_2(subsat)
}  // namespace metal
