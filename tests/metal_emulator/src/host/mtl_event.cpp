#include "mtl_event.h"

#include <algorithm>
#include <chrono>

#include "classes.h"
#include "command_thread.h"
#include "kernel/counters.h"
#include "kernel/report.h"
#include "mtl_device.h"

namespace emulator::host {

uint64_t Event::value() {
  std::lock_guard lock(mutex_);
  return value_;
}

void Event::signal(uint64_t value, Signaller by) {
  {
    std::lock_guard lock(mutex_);
    if (value < value_)
      report("api", "event '" + label_text() + "' is signalled with " + std::to_string(value) + " after " +
                        std::to_string(value_) + "; values must grow");
    value_ = std::max(value_, value);
    signaller_ = std::move(by);
  }
  changed_.notify_all();
}

void Event::host_saw() {
  std::unique_lock lock(mutex_);
  const Signaller by = signaller_;
  lock.unlock();
  if (const auto thread = by.thread.lock()) thread->host_saw(by.number);
}

void Event::wait(uint64_t value) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return value_ >= value; });
}

bool Event::wait_for(uint64_t value, uint64_t milliseconds) {
  std::unique_lock lock(mutex_);
  // A longer wait than a day would overflow the clock.
  const auto limit = std::chrono::milliseconds(std::min<uint64_t>(milliseconds, 86'400'000));
  return changed_.wait_for(lock, limit, [&] { return value_ >= value; });
}

namespace {

struct SharedEventMethods : MethodsOf<MTLSharedEvent> {
  uint64_t signaled_value() {
    self()->host_saw();
    return self()->value();
  }
  void set_signaled_value(uint64_t value) { self()->signal(value, {}); }
  bool wait_until(uint64_t value, uint64_t milliseconds) {
    ++calls().host_waits;
    wake_all_command_threads();
    const bool reached = self()->wait_for(value, milliseconds);
    if (reached) self()->host_saw();
    return reached;
  }
};

}  // namespace

void install_event() {
  define<MTLEvent>()
      .method<&MTLEvent::label>("label")
      .method<&MTLEvent::setLabel>("setLabel:")
      .method<&HasDevice::device>("device");
  define<MTLSharedEvent>()
      .method<&MTLSharedEvent::label>("label")
      .method<&MTLSharedEvent::setLabel>("setLabel:")
      .method<&HasDevice::device>("device")
      .method<&SharedEventMethods::signaled_value>("signaledValue")
      .method<&SharedEventMethods::set_signaled_value>("setSignaledValue:")
      .method<&SharedEventMethods::wait_until>("waitUntilSignaledValue:timeoutMS:", {12, 0});
  define<MTLFence>()
      .method<&MTLFence::label>("label")
      .method<&MTLFence::setLabel>("setLabel:")
      .method<&HasDevice::device>("device");
}

}  // namespace emulator::host
