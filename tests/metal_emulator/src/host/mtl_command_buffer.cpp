#include "mtl_command_buffer.h"

#include <time.h>

#include <chrono>

#include "classes.h"
#include "kernel/counters.h"
#include "kernel/report.h"
#include "kernel/settings.h"
#include "mtl_device.h"
#include "mtl_encoder.h"

namespace emulator::host {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

NSError* requested_error() {
  const int code = settings().command_buffer_error;
  const char* text = code == 2   ? "Caused GPU Timeout Error"
                     : code == 3 ? "Caused GPU Address Fault Error"
                     : code == 8 ? "Insufficient Memory"
                                 : "Internal Error";
  return make_error("MTLCommandBufferErrorDomain", code,
                    std::string(text) + " (on request of the emulator's settings)");
}

}  // namespace

uint64_t thread_cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

MTLCommandBuffer::~MTLCommandBuffer() {
  if (number == 0) queue->thread->leave();
}

CommandBufferStatus MTLCommandBuffer::status() {
  std::lock_guard lock(mutex_);
  if (status_ < CommandBufferStatus::completed) return status_;
  if (settings().late_status && !told_) return CommandBufferStatus::committed;
  queue->thread->host_saw(number);
  return status_;
}

bool MTLCommandBuffer::editable(const char* selector) {
  std::lock_guard lock(mutex_);
  if (status_ < CommandBufferStatus::committed) return true;
  report("api", name() + ": " + selector + " after commit");
  return false;
}

void MTLCommandBuffer::commit() {
  if (encoder_open) report("api", name() + ": commit before endEncoding of its encoder");
  if (!editable("commit")) return;
  calls().encode_ns += thread_cpu_ns() - created_ns_;
  calls().method_ns += static_cast<uint64_t>(nanoseconds_of_ticks(ticks_in_methods() - created_ticks_));
  advance(CommandBufferStatus::committed);
  queue->thread->commit(this);
}

void MTLCommandBuffer::wait(CommandBufferStatus for_status) {
  ++calls().host_waits;
  std::unique_lock lock(mutex_);
  const char* selector = for_status == CommandBufferStatus::completed ? "waitUntilCompleted" : "waitUntilScheduled";
  if (status_ < CommandBufferStatus::committed) {
    report("api", name() + ": " + selector + " before commit waits for ever on a Mac");
    return;
  }
  if (handler_thread_ == std::this_thread::get_id()) {
    report("api", name() + ": " + selector + " inside one of its handlers waits for ever on a Mac");
    return;
  }
  lock.unlock();
  queue->thread->wake();
  lock.lock();
  const bool completion = for_status == CommandBufferStatus::completed;
  changed_.wait(lock, [&] { return completion ? done_ : status_ >= for_status; });
  if (!completion) return;
  told_ = true;
  queue->thread->host_saw(number);
}

void MTLCommandBuffer::add_completed_handler(const void* block) {
  if (editable("addCompletedHandler:")) completed_handlers_.emplace_back(block);
}

void MTLCommandBuffer::add_scheduled_handler(const void* block) {
  if (editable("addScheduledHandler:")) scheduled_handlers_.emplace_back(block);
}

void MTLCommandBuffer::advance(CommandBufferStatus status) {
  {
    std::lock_guard lock(mutex_);
    status_ = status;
  }
  changed_.notify_all();
}

void MTLCommandBuffer::run() {
  // Handlers run here, in a pool as Metal gives them.
  AutoreleaseScope pool;
  {
    std::lock_guard lock(mutex_);
    handler_thread_ = std::this_thread::get_id();
  }
  advance(CommandBufferStatus::scheduled);
  for (const Handler& handler : scheduled_handlers_) handler(this);
  start_time = now();
  if (fails_now(settings().fail_command_buffer)) {
    error = Ref(requested_error());
  } else {
    execute(commands, {queue->thread, number, after_host});
  }
  end_time = now();
  commands.clear();
  kept.clear();
  if (!completed_handlers_.empty()) {
    const std::lock_guard lock(mutex_);
    told_ = true;
  }
  advance(error ? CommandBufferStatus::error : CommandBufferStatus::completed);
  if (!completed_handlers_.empty()) queue->thread->host_saw(number);
  for (const Handler& handler : completed_handlers_) handler(this);
  completed_handlers_.clear();
  scheduled_handlers_.clear();
  {
    std::lock_guard lock(mutex_);
    handler_thread_ = {};
    done_ = true;
  }
  changed_.notify_all();
}

namespace {

struct BufferMethods : MethodsOf<MTLCommandBuffer> {
  void commit() { self()->commit(); }
  void enqueue() { self()->editable("enqueue"); }  // one thread commits in the end: the order is that of the commits
  void wait_until_completed() { self()->wait(CommandBufferStatus::completed); }
  void wait_until_scheduled() { self()->wait(CommandBufferStatus::scheduled); }
  UInteger status() { return static_cast<UInteger>(self()->status()); }
  NSError* error() { return self()->error.get(); }
  MTLCommandQueue* queue() { return self()->queue.get(); }
  bool retained_references() { return self()->retained_references; }
  void add_completed_handler(const void* block) { self()->add_completed_handler(block); }
  void add_scheduled_handler(const void* block) { self()->add_scheduled_handler(block); }
  double start_time() { return self()->status() >= CommandBufferStatus::completed ? self()->start_time : 0; }
  double end_time() { return self()->status() >= CommandBufferStatus::completed ? self()->end_time : 0; }

  Object* compute_encoder() { return open_compute_encoder(self(), false); }
  Object* compute_encoder_of_type(UInteger type) { return open_compute_encoder(self(), type == 1); }
  Object* blit_encoder() { return open_blit_encoder(self()); }

  void signal_event(Event* event, uint64_t value) {
    if (ready("encodeSignalEvent:value:")) self()->commands.push_back(SignalEvent{Ref(event), value});
  }
  void wait_for_event(Event* event, uint64_t value) {
    if (ready("encodeWaitForEvent:value:")) self()->commands.push_back(WaitForEvent{Ref(event), value});
  }
  bool ready(const char* selector) {
    if (self()->encoder_open)
      report("api", self()->name() + ": " + selector + " while an encoder is open; call endEncoding first");
    return self()->editable(selector) && !self()->encoder_open;
  }

  void use_residency_set(MTLResidencySet* set) { self()->residency.add(set); }
  void use_residency_sets(MTLResidencySet* const sets[], UInteger count) { self()->residency.add_all(sets, count); }
  void debug_group(NSString*) {}
  void end_debug_group() {}
};

struct DescriptorMethods : MethodsOf<MTLCommandBufferDescriptor> {
  void set_retained(bool retained) { self()->retained_references = retained; }
  bool retained() { return self()->retained_references; }
  void set_error_options(UInteger options) { self()->error_options = options; }
  UInteger error_options() { return self()->error_options; }
};

}  // namespace

void install_command_buffer() {
  constexpr SystemVersion kSequoia{15, 0};
  define<MTLCommandBufferDescriptor>()
      .class_method<&MTLCommandBufferDescriptor::alloc>("alloc")
      .method<&DescriptorMethods::set_retained>("setRetainedReferences:")
      .method<&DescriptorMethods::retained>("retainedReferences")
      .method<&DescriptorMethods::set_error_options>("setErrorOptions:")
      .method<&DescriptorMethods::error_options>("errorOptions");
  define<MTLCommandBuffer>()
      .method<&MTLCommandBuffer::label>("label")
      .method<&MTLCommandBuffer::setLabel>("setLabel:")
      .method<&HasDevice::device>("device")
      .method<&BufferMethods::queue>("commandQueue")
      .method<&BufferMethods::retained_references>("retainedReferences")
      .method<&BufferMethods::compute_encoder>("computeCommandEncoder")
      .method<&BufferMethods::compute_encoder_of_type>("computeCommandEncoderWithDispatchType:")
      .method<&BufferMethods::blit_encoder>("blitCommandEncoder")
      .method<&BufferMethods::signal_event>("encodeSignalEvent:value:")
      .method<&BufferMethods::wait_for_event>("encodeWaitForEvent:value:")
      .method<&BufferMethods::use_residency_set>("useResidencySet:", kSequoia)
      .method<&BufferMethods::use_residency_sets>("useResidencySets:count:", kSequoia)
      .method<&BufferMethods::enqueue>("enqueue")
      .method<&BufferMethods::commit>("commit")
      .method<&BufferMethods::wait_until_completed>("waitUntilCompleted")
      .method<&BufferMethods::wait_until_scheduled>("waitUntilScheduled")
      .method<&BufferMethods::add_completed_handler>("addCompletedHandler:")
      .method<&BufferMethods::add_scheduled_handler>("addScheduledHandler:")
      .method<&BufferMethods::status>("status")
      .method<&BufferMethods::error>("error")
      .method<&BufferMethods::start_time>("GPUStartTime")
      .method<&BufferMethods::end_time>("GPUEndTime")
      .method<&BufferMethods::start_time>("kernelStartTime")
      .method<&BufferMethods::end_time>("kernelEndTime")
      .method<&BufferMethods::debug_group>("pushDebugGroup:")
      .method<&BufferMethods::end_debug_group>("popDebugGroup");
}

}  // namespace emulator::host
