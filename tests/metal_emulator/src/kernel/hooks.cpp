// Kernels for checks and counts are compiled with -fsanitize=thread but linked to these functions: every load and store
// of theirs arrives here.
#include <cstdint>
#include <cstring>

#include "worker.h"

namespace {

enum Kind : bool { reads = false, writes = true };

inline void seen(const volatile void* address, size_t bytes, bool write, bool atomic, void* code) {
  emulator::Worker* worker = emulator::current_worker();
  if (worker && worker->current)  // an initialiser of the library runs on no lane
    worker->access.touch(reinterpret_cast<uintptr_t>(address), bytes, write, atomic, reinterpret_cast<uintptr_t>(code));
}
inline void seen_aligned(const void* address, size_t bytes, bool write, void* code) {
  emulator::Worker* worker = emulator::current_worker();
  if (worker && worker->current)
    worker->access.touch_aligned(reinterpret_cast<uintptr_t>(address), bytes, write, reinterpret_cast<uintptr_t>(code));
}

}  // namespace

#define CALLER __builtin_return_address(0)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}

#define PLAIN(N)                                                                          \
  void __tsan_read##N(void* a) { seen_aligned(a, N, reads, CALLER); }                     \
  void __tsan_write##N(void* a) { seen_aligned(a, N, writes, CALLER); }                   \
  void __tsan_volatile_read##N(void* a) { seen_aligned(a, N, reads, CALLER); }            \
  void __tsan_volatile_write##N(void* a) { seen_aligned(a, N, writes, CALLER); }          \
  void __tsan_unaligned_read##N(void* a) { seen(a, N, reads, false, CALLER); }            \
  void __tsan_unaligned_write##N(void* a) { seen(a, N, writes, false, CALLER); }          \
  void __tsan_unaligned_volatile_read##N(void* a) { seen(a, N, reads, false, CALLER); }   \
  void __tsan_unaligned_volatile_write##N(void* a) { seen(a, N, writes, false, CALLER); } \
  void __tsan_read_write##N(void* a) {                                                    \
    seen_aligned(a, N, reads, CALLER);                                                    \
    seen_aligned(a, N, writes, CALLER);                                                   \
  }                                                                                       \
  void __tsan_unaligned_read_write##N(void* a) {                                          \
    seen(a, N, reads, false, CALLER);                                                     \
    seen(a, N, writes, false, CALLER);                                                    \
  }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

void __tsan_read_range(void* a, size_t n) { seen(a, n, reads, false, CALLER); }
void __tsan_write_range(void* a, size_t n) { seen(a, n, writes, false, CALLER); }
void* __tsan_memcpy(void* to, const void* from, size_t n) {
  seen(from, n, reads, false, CALLER);
  seen(to, n, writes, false, CALLER);
  return memcpy(to, from, n);
}
void* __tsan_memmove(void* to, const void* from, size_t n) {
  seen(from, n, reads, false, CALLER);
  seen(to, n, writes, false, CALLER);
  return memmove(to, from, n);
}
void* __tsan_memset(void* to, int value, size_t n) {
  seen(to, n, writes, false, CALLER);
  return memset(to, value, n);
}

// An atomic that changes memory counts as a write.
#define ATOMIC(B, T)                                                                               \
  T __tsan_atomic##B##_load(const volatile T* a, int) {                                            \
    seen(a, B / 8, reads, true, CALLER);                                                           \
    return __atomic_load_n(a, __ATOMIC_SEQ_CST);                                                   \
  }                                                                                                \
  void __tsan_atomic##B##_store(volatile T* a, T v, int) {                                         \
    seen(a, B / 8, writes, true, CALLER);                                                          \
    __atomic_store_n(a, v, __ATOMIC_SEQ_CST);                                                      \
  }                                                                                                \
  int __tsan_atomic##B##_compare_exchange_strong(volatile T* a, T* expected, T v, int, int) {      \
    seen(a, B / 8, writes, true, CALLER);                                                          \
    return __atomic_compare_exchange_n(a, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                                \
  int __tsan_atomic##B##_compare_exchange_weak(volatile T* a, T* expected, T v, int, int) {        \
    seen(a, B / 8, writes, true, CALLER);                                                          \
    return __atomic_compare_exchange_n(a, expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                                \
  UPDATE(B, T, exchange, __atomic_exchange_n)                                                      \
  UPDATE(B, T, fetch_add, __atomic_fetch_add)                                                      \
  UPDATE(B, T, fetch_sub, __atomic_fetch_sub)                                                      \
  UPDATE(B, T, fetch_and, __atomic_fetch_and)                                                      \
  UPDATE(B, T, fetch_or, __atomic_fetch_or)                                                        \
  UPDATE(B, T, fetch_xor, __atomic_fetch_xor)                                                      \
  UPDATE(B, T, fetch_nand, __atomic_fetch_nand)
#define UPDATE(B, T, name, builtin)                      \
  T __tsan_atomic##B##_##name(volatile T* a, T v, int) { \
    seen(a, B / 8, writes, true, CALLER);                \
    return builtin(a, v, __ATOMIC_SEQ_CST);              \
  }
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)
}
