#include "metal/metal_context.h"

#include "core/forks.h"

namespace saragossa::metal {

Context::Context(NS::SharedPtr<MTL::Device> on, const Switches& s)
    : device(std::move(on)),
      switches(s),
      gpu(capabilities_of(device.get())),
      tuning(tuning_for(gpu)),
      queue(NS::TransferPtr(device->newCommandQueue())),
      fence(NS::TransferPtr(device->newFence())),
      memory(device.get(), queue.get(), gpu.residency_sets, gpu.max_buffer),
      kernels(device.get(), gpu, switches.kernel_cache) {
  if (switches.metal_command_macs > 0) tuning.prefill_macs = switches.metal_command_macs;
}

void Context::wait_idle() {
  const Pool pool;
  // Untracked work is ordered by the fence alone: an encoder that waits for it is done after all before it.
  MTL::CommandBuffer* last = queue->commandBuffer();
  MTL::ComputeCommandEncoder* wait = last->computeCommandEncoder();
  if (fenced) wait->waitForFence(fence.get());
  wait->endEncoding();
  last->commit();
  last->waitUntilCompleted();
}

void Context::add_time(const char* kernel, double seconds) {
  const std::lock_guard lock(mutex_);
  KernelTime& time = times_[kernel];
  ++time.runs;
  time.seconds += seconds;
}

std::vector<KernelTime> Context::times() const {
  const std::lock_guard lock(mutex_);
  std::vector<KernelTime> out;
  for (const auto& [kernel, time] : times_) out.push_back({kernel, time.runs, time.seconds});
  return out;
}

std::unique_ptr<Arena> Context::take_arena() {
  const std::lock_guard lock(mutex_);
  if (arenas_.empty()) return std::make_unique<Arena>(memory, switches.poison_scratch);
  std::unique_ptr<Arena> arena = std::move(arenas_.back());
  arenas_.pop_back();
  return arena;
}

void Context::give_arena(std::unique_ptr<Arena> arena) {
  arena->reset();
  const std::lock_guard lock(mutex_);
  arenas_.push_back(std::move(arena));
}

Step::Step(Context& context) : arena(context.take_arena()) { open(context); }

void Step::open(Context& context) {
  const Pool pool;
  // Unretained: the submission holds the buffers, Metal need not count each of them.
  buffer = NS::RetainPtr(context.queue->commandBufferWithUnretainedReferences());
  if (!buffer) fail(ErrorKind::device, "metal: the queue gives no command buffer");
  encoder = NS::RetainPtr(buffer->computeCommandEncoder(MTL::DispatchTypeConcurrent));
  if (!encoder) fail(ErrorKind::device, "metal: the command buffer gives no encoder");
  if (context.fenced) encoder->waitForFence(context.fence.get());
}

void Step::commit(Context& context) {
  encoder->updateFence(context.fence.get());
  context.fenced = true;
  encoder->endEncoding();
  encoder.reset();
  buffer->commit();
}

void Step::cut(Context& context) {
  earlier.push_back(buffer);  // before it runs: nobody loses what the GPU has
  commit(context);
  open(context);
}

void Step::check() const {
  const auto check = [](MTL::CommandBuffer* part) {
    const Pool pool;
    // Metal promises no moment at which the end of an earlier one is seen.
    if (part->status() < MTL::CommandBufferStatusCompleted) part->waitUntilCompleted();
    if (part->status() == MTL::CommandBufferStatusCompleted) return;
    fail(ErrorKind::device, "metal: the GPU did not finish a step: ", text_of(part->error()));
  };
  for (const auto& part : earlier) check(part.get());
  check(buffer.get());
}

/// Set by Metal's completion handler, so that nobody waits inside Metal.
struct MetalSubmission::Signal {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
};

MetalSubmission::MetalSubmission(std::shared_ptr<Context> context, std::unique_ptr<Step> step, OpRecords records)
    : context_(std::move(context)),
      step_(std::move(step)),
      records_(std::move(records)),
      forks_at_commit_(forks()),
      signal_(std::make_shared<Signal>()) {
  for (const OpRecord& op : records_.ops())
    for (const Touch& t : records_.writes(op)) t.buffer->begin_write();
  step_->buffer->addCompletedHandler([signal = signal_](MTL::CommandBuffer*) {
    const std::lock_guard lock(signal->mutex);
    signal->done = true;
    signal->changed.notify_all();
  });
  step_->commit(*context_);
}

MetalSubmission::~MetalSubmission() {
  finish();
  context_->give_arena(std::move(step_->arena));
}

void MetalSubmission::finish() {
  if (finished_) return;
  if (forks_at_commit_ == forks()) {  // in a forked child nothing will ever be done
    std::unique_lock lock(signal_->mutex);
    signal_->changed.wait(lock, [&] { return signal_->done; });
  }
  finished_ = true;
  for (const OpRecord& op : records_.ops())
    for (const Touch& t : records_.writes(op)) t.buffer->end_write();
  records_ = {};
  context_->kernels.save_when_quiet();
}

void MetalSubmission::wait() {
  finish();
  step_->check();
}

}  // namespace saragossa::metal
