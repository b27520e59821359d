#pragma once
// Memory whose end is watched: what is read or written behind it stops the program.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

/// n values that end at a page without access.
template <class T>
class Guarded {
 public:
  explicit Guarded(int64_t n) : n_(n) {
    const auto page = static_cast<int64_t>(sysconf(_SC_PAGESIZE));
    const int64_t bytes = n * static_cast<int64_t>(sizeof(T)), body = (bytes + page - 1) / page * page;
    size_ = static_cast<size_t>(body + page);
    void* p = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(static_cast<uint8_t*>(p) + body, static_cast<size_t>(page), PROT_NONE) != 0) {
      std::perror("mmap");
      std::exit(1);
    }
    base_ = static_cast<uint8_t*>(p);
    begin_ = reinterpret_cast<T*>(base_ + (body - bytes));
  }
  explicit Guarded(const std::vector<T>& from) : Guarded(static_cast<int64_t>(from.size())) {
    if (n_ > 0) std::memcpy(begin_, from.data(), from.size() * sizeof(T));
  }
  ~Guarded() { munmap(base_, size_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* get() const { return begin_; }
  int64_t size() const { return n_; }
  T& operator[](int64_t i) const { return begin_[i]; }

 private:
  int64_t n_;
  size_t size_ = 0;
  uint8_t* base_ = nullptr;
  T* begin_ = nullptr;
};
