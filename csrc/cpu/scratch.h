#pragma once
// Workspace of the CPU device.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace saragossa::cpu {

inline int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

/// Bytes on a cache line that only grow; what they held is lost when they do.
class Scratch {
 public:
  uint8_t* get(int64_t bytes) {
    if (bytes > size_) {
      size_ = 0;
      bytes_.reset();
      bytes_.reset(static_cast<uint8_t*>(std::aligned_alloc(kAlign, static_cast<size_t>(round_up(bytes, kAlign)))));
      if (!bytes_) throw std::bad_alloc();
      size_ = bytes;
    }
    return bytes_.get();
  }
  float* floats(int64_t n) { return reinterpret_cast<float*>(get(n * static_cast<int64_t>(sizeof(float)))); }

 private:
  static constexpr int64_t kAlign = 64;
  struct Free {
    void operator()(uint8_t* p) const { std::free(p); }
  };
  std::unique_ptr<uint8_t, Free> bytes_;
  int64_t size_ = 0;
};

}  // namespace saragossa::cpu
