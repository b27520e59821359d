// <metal_type_traits>
#pragma once
namespace metal {

template <class T, T V>
struct integral_constant {
  static constexpr T value = V;
  using value_type = T;
  constexpr operator T() const { return V; }
};
template <bool B>
using bool_constant = integral_constant<bool, B>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

template <bool B, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  using type = T;
};
template <bool B, class T = void>
using enable_if_t = typename enable_if<B, T>::type;

template <bool B, class T, class F>
struct conditional {
  using type = T;
};
template <class T, class F>
struct conditional<false, T, F> {
  using type = F;
};
template <bool B, class T, class F>
using conditional_t = typename conditional<B, T, F>::type;

// Each trait as a struct with ::type and as an alias.
#define EMULATOR_TRANSFORM(name, ...) \
  template <class T>                  \
  struct name {                       \
    using type = __VA_ARGS__;         \
  };                                  \
  template <class T>                  \
  using name##_t = __VA_ARGS__;
EMULATOR_TRANSFORM(remove_cv, __remove_cv(T))
EMULATOR_TRANSFORM(remove_const, __remove_const(T))
EMULATOR_TRANSFORM(remove_volatile, __remove_volatile(T))
EMULATOR_TRANSFORM(remove_reference, __remove_reference_t(T))
EMULATOR_TRANSFORM(remove_pointer, __remove_pointer(T))
EMULATOR_TRANSFORM(decay, __decay(T))
EMULATOR_TRANSFORM(make_unsigned, __make_unsigned(T))
EMULATOR_TRANSFORM(make_signed, __make_signed(T))
EMULATOR_TRANSFORM(underlying_type, __underlying_type(T))
template <class T>
using remove_addrspace_t = T;

// Each predicate as a constant and as a struct.
#define EMULATOR_PREDICATE(name, ...)    \
  template <class T>                     \
  constexpr bool name##_v = __VA_ARGS__; \
  template <class T>                     \
  struct name : bool_constant<(__VA_ARGS__)> {};
template <class A, class B>
constexpr bool is_same_v = __is_same(A, B);
template <class A, class B>
struct is_same : bool_constant<__is_same(A, B)> {};
template <class A, class B>
constexpr bool is_convertible_v = __is_convertible_to(A, B);
EMULATOR_PREDICATE(is_floating_point, __is_same(__remove_cv(T), float) || __is_same(__remove_cv(T), half) ||
                                          __is_same(__remove_cv(T), bfloat))
EMULATOR_PREDICATE(is_integral, __is_integral(T))
EMULATOR_PREDICATE(is_arithmetic, is_floating_point_v<T> || __is_integral(T))
EMULATOR_PREDICATE(is_scalar, is_floating_point_v<T> || __is_scalar(T))
EMULATOR_PREDICATE(is_signed, is_floating_point_v<T> || __is_signed(T))
EMULATOR_PREDICATE(is_unsigned, __is_unsigned(T))
EMULATOR_PREDICATE(is_pointer, __is_pointer(T))
EMULATOR_PREDICATE(is_reference, __is_reference(T))
EMULATOR_PREDICATE(is_const, __is_const(T))
EMULATOR_PREDICATE(is_enum, __is_enum(T))
EMULATOR_PREDICATE(is_void, __is_same(__remove_cv(T), void))

template <class T>
T declval();
template <class T>
constexpr T&& forward(remove_reference_t<T>& t) {
  return static_cast<T&&>(t);
}
template <class T>
constexpr remove_reference_t<T>&& move(T&& t) {
  return static_cast<remove_reference_t<T>&&>(t);
}
template <class T>
using uniform = T;
template <class T>
constexpr T make_uniform(T x) {
  return x;
}
}  // namespace metal
