#include "core/forks.h"

#include <pthread.h>

#include <atomic>

namespace saragossa {
namespace {

std::atomic<int> g_forks{0};

}  // namespace

int forks() {
  static const bool registered = [] {
    pthread_atfork(nullptr, nullptr, [] { g_forks.fetch_add(1, std::memory_order_relaxed); });
    return true;
  }();
  static_cast<void>(registered);
  return g_forks.load(std::memory_order_relaxed);
}

}  // namespace saragossa
