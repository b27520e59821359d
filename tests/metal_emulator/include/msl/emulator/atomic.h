// <metal_atomic>: relaxed atomics on device and threadgroup memory. The order argument must be memory_order_relaxed,
// as in Metal before 3.2; threads of the host run them, so they are atomic across workers.
#pragma once
namespace metal {
enum memory_order { memory_order_relaxed, memory_order_seq_cst };
enum thread_scope {
  thread_scope_thread,
  thread_scope_simdgroup,
  thread_scope_threadgroup,
  thread_scope_device,
  thread_scope_system
};

template <class T>
struct atomic {
  T value;
};
using atomic_int = atomic<int>;
using atomic_uint = atomic<uint>;
using atomic_float = atomic<float>;
using atomic_bool = atomic<bool>;
using atomic_ulong = atomic<ulong>;

template <class T>
EMULATOR_INLINE T atomic_load_explicit(const volatile atomic<T>* p, memory_order) {
  T value;
  __atomic_load(&p->value, &value, __ATOMIC_RELAXED);
  return value;
}
template <class T, class U>
EMULATOR_INLINE void atomic_store_explicit(volatile atomic<T>* p, U desired, memory_order) {
  T value = static_cast<T>(desired);
  __atomic_store(&p->value, &value, __ATOMIC_RELAXED);
}
template <class T, class U>
EMULATOR_INLINE T atomic_exchange_explicit(volatile atomic<T>* p, U desired, memory_order) {
  T value = static_cast<T>(desired), old;
  __atomic_exchange(&p->value, &value, &old, __ATOMIC_RELAXED);
  return old;
}
template <class T>
EMULATOR_INLINE bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* p, T* expected, T desired, memory_order,
                                                           memory_order) {
  return __atomic_compare_exchange(&p->value, expected, &desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/// p = op(p, x); returns what p was.
template <class T, class Op>
EMULATOR_INLINE T atomic_update(volatile atomic<T>* p, Op op) {
  T old, next;
  __atomic_load(&p->value, &old, __ATOMIC_RELAXED);
  do next = op(old);
  while (!__atomic_compare_exchange(&p->value, &old, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old;
}
#define EMULATOR_ATOMIC_INTEGER(name, builtin)                       \
  template <class T, class U>                                        \
  EMULATOR_INLINE T name(volatile atomic<T>* p, U x, memory_order) { \
    static_assert(is_integral_v<T>, #name " takes integers");        \
    return builtin(&p->value, static_cast<T>(x), __ATOMIC_RELAXED);  \
  }
EMULATOR_ATOMIC_INTEGER(atomic_fetch_and_explicit, __atomic_fetch_and)
EMULATOR_ATOMIC_INTEGER(atomic_fetch_or_explicit, __atomic_fetch_or)
EMULATOR_ATOMIC_INTEGER(atomic_fetch_xor_explicit, __atomic_fetch_xor)

// As a loop, since the instrumentation does not see the machine's own minimum.
template <class T, class U>
EMULATOR_INLINE T atomic_fetch_min_explicit(volatile atomic<T>* p, U x, memory_order) {
  return atomic_update(p, [&](T old) { return min(old, static_cast<T>(x)); });
}
template <class T, class U>
EMULATOR_INLINE T atomic_fetch_max_explicit(volatile atomic<T>* p, U x, memory_order) {
  return atomic_update(p, [&](T old) { return max(old, static_cast<T>(x)); });
}

template <class T, class U>
EMULATOR_INLINE T atomic_fetch_add_explicit(volatile atomic<T>* p, U x, memory_order) {
  if constexpr (is_integral_v<T>)
    return __atomic_fetch_add(&p->value, static_cast<T>(x), __ATOMIC_RELAXED);
  else
    return atomic_update(p, [&](T old) { return old + static_cast<T>(x); });
}
template <class T, class U>
EMULATOR_INLINE T atomic_fetch_sub_explicit(volatile atomic<T>* p, U x, memory_order) {
  if constexpr (is_integral_v<T>)
    return __atomic_fetch_sub(&p->value, static_cast<T>(x), __ATOMIC_RELAXED);
  else
    return atomic_update(p, [&](T old) { return old - static_cast<T>(x); });
}
EMULATOR_INLINE void atomic_thread_fence(mem_flags, memory_order, thread_scope = thread_scope_device) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
}  // namespace metal
