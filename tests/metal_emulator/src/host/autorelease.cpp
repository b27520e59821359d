// Autorelease pools. Each thread has a stack of them; an autoreleased object belongs to the innermost one.

#include <algorithm>
#include <memory>
#include <vector>

#include "classes.h"
#include "kernel/report.h"
#include "object.h"
#include "runtime.h"

namespace emulator::host {
namespace {

struct NSAutoreleasePool;

/// The pools of one thread, innermost last, and what was autoreleased outside of any.
struct ThreadPools {
  std::vector<NSAutoreleasePool*> open;
  std::vector<Object*> without_pool;
  ~ThreadPools() {
    for (Object* object : without_pool) object->release();
  }
};
thread_local ThreadPools thread_pools;

struct NSAutoreleasePool final : Instance<NSAutoreleasePool> {
  static constexpr const char* kName = "NSAutoreleasePool";
  std::vector<Object*> objects;

  Object* init() {
    thread_pools.open.push_back(this);
    return this;
  }

  void addObject(Object* object) { objects.push_back(object); }

  /// Ends the pool, and with it those that were opened after it and not drained.
  void drain() {
    auto& open = thread_pools.open;
    const auto self = std::find(open.begin(), open.end(), this);
    if (self == open.end()) {
      report("api", "an NSAutoreleasePool is drained on a thread that did not open it, or for the second time");
      return;
    }
    const std::vector<NSAutoreleasePool*> ended(self, open.end());
    open.erase(self, open.end());
    for (auto pool = ended.rbegin(); pool != ended.rend(); ++pool) {
      // Releasing may autorelease more: into the pool outside, as the ended ones have left the stack.
      for (Object* object : (*pool)->objects) object->release();
      delete *pool;
    }
  }
};

}  // namespace

Object* autorelease(Object* object) {
  if (!object) return nullptr;
  if (!thread_pools.open.empty()) {
    thread_pools.open.back()->objects.push_back(object);
  } else {
    report("api", object->isa().name +
                      " is autoreleased on a thread without an NSAutoreleasePool: it lives until the "
                      "thread ends; open a pool around the call");
    thread_pools.without_pool.push_back(object);
  }
  return object;
}

AutoreleaseScope::AutoreleaseScope() : pool_((new NSAutoreleasePool)->init()) {}

AutoreleaseScope::~AutoreleaseScope() { static_cast<NSAutoreleasePool*>(pool_)->drain(); }

void install_autorelease_pool() {
  define<NSAutoreleasePool>()
      .class_method<&NSAutoreleasePool::alloc>("alloc")
      .method<&NSAutoreleasePool::init>("init")
      .method<&NSAutoreleasePool::addObject>("addObject:")
      .method<&NSAutoreleasePool::drain>("drain")
      .method<&NSAutoreleasePool::drain>("release");
}

}  // namespace emulator::host
