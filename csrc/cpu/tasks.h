#pragma once
// What ops that share their work out themselves have in common.

#include <cstdint>
#include <vector>

#include "core/thread_pool.h"

namespace saragossa::cpu {

/// At least so many floats of a buffer that only grows; what it held may be there or not.
inline float* sized(std::vector<float>& buffer, int64_t floats) {
  if (static_cast<int64_t>(buffer.size()) < floats) buffer.resize(static_cast<size_t>(floats));
  return buffer.data();
}

/// fn(task, worker), on the caller where there is little to do.
template <class Fn>
void each(ThreadPool& pool, bool serial, int64_t tasks, Fn&& fn) {
  if (serial || tasks == 1)
    for (int64_t i = 0; i < tasks; ++i) fn(i, 0);
  else
    pool.run(tasks, fn);
}

}  // namespace saragossa::cpu
