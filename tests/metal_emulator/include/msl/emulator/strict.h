// The Metal library as declarations, for the check of address spaces alone (tools/check_msl.cpp).
//
// clang's C++ for OpenCL has Metal's rules: a pointer has one address space, none converts into another, a member
// function works on objects of its own space. Nothing here is ever called.
#pragma once
#pragma OPENCL EXTENSION cl_khr_fp16 : enable

// Names that OpenCL has already.
#define atomic_uint metal_atomic_uint
#define atomic_int metal_atomic_int
#define atomic_float metal_atomic_float
#define memory_order metal_memory_order
#define memory_order_relaxed metal_memory_order_relaxed
#define device __global
#define threadgroup __local
#define constant __constant
#define thread __private

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
typedef long ptrdiff_t;
struct bfloat {
  ushort bits;
  bfloat() = default;
  explicit bfloat(float);
  explicit bfloat(half);
  operator float() const;
  operator float() const device;
  operator float() const threadgroup;
  operator float() const constant;
};

namespace metal {
template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));
}
#define VECTOR_NAMES(T)                               \
  typedef T T##2 __attribute__((ext_vector_type(2))); \
  typedef T T##3 __attribute__((ext_vector_type(3))); \
  typedef T T##4 __attribute__((ext_vector_type(4)));
VECTOR_NAMES(float)
VECTOR_NAMES(half)
VECTOR_NAMES(char)
VECTOR_NAMES(uchar)
VECTOR_NAMES(short)
VECTOR_NAMES(ushort)
VECTOR_NAMES(int)
VECTOR_NAMES(uint)
VECTOR_NAMES(long)
VECTOR_NAMES(ulong)
typedef char bool2 __attribute__((ext_vector_type(2)));
typedef char bool3 __attribute__((ext_vector_type(3)));
typedef char bool4 __attribute__((ext_vector_type(4)));
// bfloat is a struct here, so its vectors are, too.
template <int N>
struct bfloat_vector {
  bfloat x, y, z, w;
  bfloat operator[](int) const;
  bfloat operator[](int) const device;
};
typedef bfloat_vector<2> bfloat2;
typedef bfloat_vector<3> bfloat3;
typedef bfloat_vector<4> bfloat4;

// What the rewriter makes of constructors: float4(a, b, c, d).
template <class V, class... A>
V make_vector(A...);
template <class V, int N>
V make_vector(const device bfloat_vector<N>&);

template <class T, int N>
struct packed_vec {
  T x, y, z, w;
};
#define PACKED_NAMES(T)                   \
  typedef packed_vec<T, 2> packed_##T##2; \
  typedef packed_vec<T, 3> packed_##T##3; \
  typedef packed_vec<T, 4> packed_##T##4;
PACKED_NAMES(float)
PACKED_NAMES(half)
PACKED_NAMES(uint)
PACKED_NAMES(int)
PACKED_NAMES(ushort)
PACKED_NAMES(short)
PACKED_NAMES(uchar)
PACKED_NAMES(char)
template <class V, class T, int N>
V make_vector(const device packed_vec<T, N>&);

template <class To, class From>
To as_type(From);

namespace metal {
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
template <class A, class B>
constexpr constant bool is_same_v = __is_same(A, B);
template <bool B>
struct bool_constant {
  static constexpr constant bool value = B;
};
template <class T>
struct numeric_limits {
  static constexpr T max() { return T(); }
  static constexpr T min() { return T(); }
  static constexpr T lowest() { return T(); }
  static constexpr T infinity() { return T(); }
  static constexpr T epsilon() { return T(); }
  static constexpr T quiet_NaN() { return T(); }
};

enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
mem_flags operator|(mem_flags, mem_flags);
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);

#define ONE(name)    \
  template <class T> \
  T name(T);
#define TWO(name)    \
  template <class T> \
  T name(T, T);
#define THREE(name)  \
  template <class T> \
  T name(T, T, T);
// clang-format off
#define MATH                                                                                                     \
  ONE(exp) ONE(exp2) ONE(exp10) ONE(log) ONE(log2) ONE(log10) ONE(sqrt) ONE(rsqrt) ONE(sin) ONE(cos) ONE(tan)    \
  ONE(sinpi) ONE(cospi) ONE(tanpi) ONE(sinh) ONE(cosh) ONE(tanh) ONE(asin) ONE(acos) ONE(atan) ONE(asinh)        \
  ONE(acosh) ONE(atanh) ONE(floor) ONE(ceil) ONE(trunc) ONE(round) ONE(rint) ONE(fabs) ONE(fract) TWO(pow)       \
  TWO(powr) TWO(fmod) TWO(fmin) TWO(fmax) TWO(fdim) TWO(atan2) TWO(divide) TWO(copysign) THREE(fma)              \
  float sincos(float, thread float&);
MATH
namespace fast {
MATH
}
namespace precise {
MATH
}
// clang-format on
template <class T, class U>
T max(T, U);
template <class T, class U>
T min(T, U);
template <class T, class U, class V>
T clamp(T, U, V);
ONE(abs)
ONE(sign)
ONE(saturate)
THREE(mix)
template <class T>
bool isnan(T);
template <class T>
bool isinf(T);
template <class T>
bool isfinite(T);
template <class T, class C>
T select(T, T, C);
template <class T>
bool any(T);
template <class T>
bool all(T);
template <class T>
auto dot(T a, T) -> decltype(a.x);
template <class T>
auto length(T a) -> decltype(a.x);
float ldexp(float, int);
ONE(popcount)
ONE(clz)
ONE(ctz)
ONE(reverse_bits)
TWO(mulhi)
TWO(rotate)
template <class T>
T extract_bits(T, uint, uint);
template <class T>
T insert_bits(T, T, uint, uint);
float4 unpack_unorm4x8_to_float(uint);
float4 unpack_snorm4x8_to_float(uint);

ONE(simd_sum)
ONE(simd_product)
ONE(simd_max)
ONE(simd_min)
ONE(simd_and)
ONE(simd_or)
ONE(simd_xor)
ONE(simd_prefix_inclusive_sum)
ONE(simd_prefix_exclusive_sum)
ONE(simd_prefix_inclusive_product)
ONE(simd_prefix_exclusive_product)
ONE(simd_broadcast_first)
ONE(quad_sum)
ONE(quad_max)
ONE(quad_min)
#define LANE(name)   \
  template <class T> \
  T name(T, ushort);
LANE(simd_shuffle)
LANE(simd_shuffle_xor)
LANE(simd_shuffle_down)
LANE(simd_shuffle_up)
LANE(simd_shuffle_rotate_down)
LANE(simd_shuffle_rotate_up)
LANE(simd_broadcast)
LANE(quad_shuffle)
LANE(quad_shuffle_xor)
LANE(quad_shuffle_down)
LANE(quad_broadcast)
template <class T>
T simd_shuffle_and_fill_down(T, T, ushort, ushort = 32);
template <class T>
T simd_shuffle_and_fill_up(T, T, ushort, ushort = 32);
struct simd_vote {
  typedef ulong vote_t;
  explicit operator ulong() const;
  bool all() const;
  bool any() const;
};
simd_vote simd_ballot(bool);
simd_vote simd_active_threads_mask();
bool simd_all(bool);
bool simd_any(bool);
bool simd_is_first();

enum memory_order { memory_order_relaxed };
template <class T>
struct atomic {
  T value;
};
typedef atomic<uint> atomic_uint;
typedef atomic<int> atomic_int;
typedef atomic<float> atomic_float;
#define ATOMIC(name)                                   \
  template <class T, class U>                          \
  T name(volatile device atomic<T>*, U, memory_order); \
  template <class T, class U>                          \
  T name(volatile threadgroup atomic<T>*, U, memory_order);
ATOMIC(atomic_fetch_add_explicit)
ATOMIC(atomic_fetch_sub_explicit)
ATOMIC(atomic_fetch_max_explicit)
ATOMIC(atomic_fetch_min_explicit)
ATOMIC(atomic_fetch_or_explicit)
ATOMIC(atomic_fetch_and_explicit)
ATOMIC(atomic_fetch_xor_explicit)
ATOMIC(atomic_exchange_explicit)
ATOMIC(atomic_store_explicit)
template <class T>
T atomic_load_explicit(const volatile device atomic<T>*, memory_order);
template <class T>
T atomic_load_explicit(const volatile threadgroup atomic<T>*, memory_order);
template <class T>
bool atomic_compare_exchange_weak_explicit(volatile device atomic<T>*, thread T*, T, memory_order, memory_order);
template <class T>
bool atomic_compare_exchange_weak_explicit(volatile threadgroup atomic<T>*, thread T*, T, memory_order, memory_order);

template <class T, size_t N>
struct array {
  T elements[N];
  thread T& operator[](size_t);
};

template <class T>
struct Pair {
  using type = vec<T, 2>;
};
template <>
struct Pair<bfloat> {
  using type = bfloat2;
};
template <class T, int Columns, int Rows>
struct simdgroup_matrix {
  typename Pair<T>::type elements;
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T);
  thread typename Pair<T>::type& thread_elements();
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
template <class T, int C, int R>
simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T);
#define MATRIX_IN(space)                                                                                       \
  template <class T>                                                                                           \
  void simdgroup_load(thread simdgroup_matrix<T, 8, 8>&, const space T*, ulong = 8, ulong2 = 0, bool = false); \
  template <class T>                                                                                           \
  void simdgroup_store(simdgroup_matrix<T, 8, 8>, space T*, ulong = 8, ulong2 = 0, bool = false);
MATRIX_IN(device)
MATRIX_IN(threadgroup)
template <class D, class A, class B, class C>
void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8>&, const thread simdgroup_matrix<A, 8, 8>&,
                                   const thread simdgroup_matrix<B, 8, 8>&, const thread simdgroup_matrix<C, 8, 8>&);
template <class D, class A, class B>
void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8>&, const thread simdgroup_matrix<A, 8, 8>&,
                        const thread simdgroup_matrix<B, 8, 8>&);
}  // namespace metal

#include "strict_tensor.h"

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define FLT_MAX 3.402823466e+38f
#define INT_MAX 2147483647
#define UINT_MAX 4294967295u
#define METAL_FUNC inline
#define M_PI_F 3.14159265358979323846f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LN2_F 0.69314718055994530942f
#define M_SQRT1_2_F 0.70710678118654752440f
#define M_2_SQRTPI_F 1.12837916709551257390f
