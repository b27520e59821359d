// Command buffers and encoders: their life, and what Metal's validation refuses.
#include <atomic>
#include <cstring>
#include <thread>

#include "harness.h"

using namespace host_test;

namespace {

struct Fixture {
  Released released;
  MTL::CommandQueue* queue = released(device()->newCommandQueue());
  MTL::ComputePipelineState* add = released(pipeline("add_step"));
  MTL::Buffer* in = released(buffer(64, "in"));
  MTL::Buffer* out = released(buffer(64, "out"));

  void run(MTL::CommandBuffer* commands) {
    commands->commit();
    commands->waitUntilCompleted();
  }
};

long counter(const char* name) {
  const std::string json = emulator_counters(0);
  const std::string key = "\"" + std::string(name) + "\":";
  const size_t at = json.find(key);
  return at == std::string::npos ? -1 : std::strtol(json.c_str() + at + key.size(), nullptr, 10);
}

}  // namespace

HOST_TEST(a_kernel_runs) {
  Fixture t;
  floats(t.in)[40] = 2;
  MTL::CommandBuffer* commands = t.queue->commandBuffer();
  commands->setLabel(string("first"));
  CHECK(commands->status() == MTL::CommandBufferStatusNotEnqueued);
  MTL::ComputeCommandEncoder* encoder = commands->computeCommandEncoder();
  dispatch(encoder, t.add, t.in, t.out, 64);
  encoder->endEncoding();
  t.run(commands);
  CHECK(commands->status() == MTL::CommandBufferStatusCompleted);
  CHECK(commands->error() == nullptr);
  CHECK(floats(t.out)[40] == 3 && floats(t.out)[63] == 1);
  CHECK(commands->GPUEndTime() > commands->GPUStartTime() && commands->GPUStartTime() > 0);
}

HOST_TEST(calls_are_counted) {
  Fixture t;
  emulator_counters(1);
  MTL::CommandBuffer* commands = t.queue->commandBuffer();
  MTL::ComputeCommandEncoder* encoder = commands->computeCommandEncoder(MTL::DispatchTypeConcurrent);
  CHECK(encoder->dispatchType() == MTL::DispatchTypeConcurrent);
  dispatch(encoder, t.add, t.in, t.out, 64);
  encoder->memoryBarrier(MTL::BarrierScopeBuffers);
  const float unused = 1;
  encoder->setBytes(&unused, 4, 5);
  dispatch(encoder, t.add, t.out, t.in, 64);
  encoder->endEncoding();
  t.run(commands);
  CHECK(counter("command_buffers") == 1);
  CHECK(counter("encoders") == 1);
  CHECK(counter("dispatches") == 2);
  CHECK(counter("barriers") == 1);
  CHECK(counter("host_waits") == 1);
  CHECK(counter("inline_bytes") == 4);
}

HOST_TEST(handlers_see_the_completed_buffer) {
  Fixture t;
  std::atomic<int> order{0}, scheduled{0}, completed{0};
  MTL::CommandBuffer* commands = t.queue->commandBuffer();
  commands->addScheduledHandler(MTL::HandlerFunction([&](MTL::CommandBuffer*) { scheduled = ++order; }));
  commands->addCompletedHandler(MTL::HandlerFunction([&](MTL::CommandBuffer* c) {
    CHECK(c->status() == MTL::CommandBufferStatusCompleted);
    NS::String::string("in the handler's own pool", NS::UTF8StringEncoding);
    completed = ++order;
  }));
  t.run(commands);
  CHECK(scheduled == 1 && completed == 2);
}

HOST_TEST(work_waits_for_somebody_to_wait) {
  set("lazy_ms", "60000");
  Fixture t;
  MTL::CommandBuffer* commands = t.queue->commandBuffer();
  MTL::ComputeCommandEncoder* encoder = commands->computeCommandEncoder();
  dispatch(encoder, t.add, t.in, t.out, 64);
  encoder->endEncoding();
  commands->commit();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(floats(t.out)[0] == 0);  // a read without a wait
  commands->waitUntilCompleted();
  CHECK(floats(t.out)[0] == 1);
}

HOST_TEST(a_shared_event_orders_host_and_device) {
  Fixture t;
  MTL::SharedEvent* event = t.released(device()->newSharedEvent());
  MTL::CommandBuffer* commands = t.queue->commandBuffer();
  commands->encodeWait(event, 1);
  MTL::ComputeCommandEncoder* encoder = commands->computeCommandEncoder();
  dispatch(encoder, t.add, t.in, t.out, 64);
  encoder->endEncoding();
  commands->encodeSignalEvent(event, 2);
  commands->commit();
  CHECK(!event->waitUntilSignaledValue(2, 20));
  floats(t.in)[0] = 9;
  event->setSignaledValue(1);
  CHECK(event->waitUntilSignaledValue(2, 10000));
  CHECK(event->signaledValue() == 2 && floats(t.out)[0] == 10);
  commands->waitUntilCompleted();
  event->setSignaledValue(1);
  expect_report("values must grow");
}

HOST_TEST(blits_copy_and_fill) {
  Fixture t;
  MTL::Buffer* hidden = t.released(buffer(64, "hidden", MTL::ResourceStorageModePrivate));
  floats(t.in)[3] = 5;
  emulator_counters(1);
  MTL::CommandBuffer* commands = t.queue->commandBuffer();
  MTL::BlitCommandEncoder* blit = commands->blitCommandEncoder();
  blit->copyFromBuffer(t.in, 0, hidden, 0, 256);
  blit->copyFromBuffer(hidden, 12, t.out, 0, 4);
  blit->fillBuffer(t.out, NS::Range::Make(4, 4), 0xff);
  blit->copyFromBuffer(t.in, 128, t.out, 200, 128);
  blit->endEncoding();
  t.run(commands);
  CHECK(floats(t.out)[0] == 5);
  CHECK(reinterpret_cast<uint32_t*>(floats(t.out))[1] == 0xffffffff);
  CHECK(counter("readbacks") == 1);
  expect_report("128 bytes at 200 of 'out', which has 256");
}

HOST_TEST(commit_with_an_open_encoder) {
  Fixture t;
  MTL::CommandBuffer* commands = t.queue->commandBuffer();
  MTL::ComputeCommandEncoder* encoder = commands->computeCommandEncoder();
  commands->commit();
  expect_report("commit before endEncoding");
  encoder->endEncoding();
  commands->waitUntilCompleted();
}

HOST_TEST(two_open_encoders) {
  Fixture t;
  MTL::CommandBuffer* commands = t.queue->commandBuffer();
  MTL::ComputeCommandEncoder* first = commands->computeCommandEncoder();
  MTL::ComputeCommandEncoder* second = commands->computeCommandEncoder();
  expect_report("computeCommandEncoder while another encoder is open");
  first->endEncoding();
  second->endEncoding();
}

HOST_TEST(calls_after_end_encoding) {
  Fixture t;
  MTL::CommandBuffer* commands = t.queue->commandBuffer();
  MTL::ComputeCommandEncoder* encoder = commands->computeCommandEncoder();
  encoder->setComputePipelineState(t.add);
  encoder->endEncoding();
  encoder->dispatchThreads(MTL::Size::Make(32, 1, 1), MTL::Size::Make(32, 1, 1));
  expect_report("dispatchThreads: after endEncoding");
  encoder->setBuffer(t.in, 0, 0);
  expect_report("setBuffer:offset:atIndex: after endEncoding");
  encoder->endEncoding();
  expect_report("endEncoding after endEncoding");
}

HOST_TEST(an_encoder_that_never_ends) {
  Fixture t;
  NS::AutoreleasePool* pool = NS::AutoreleasePool::alloc()->init();
  t.queue->commandBuffer()->computeCommandEncoder();
  pool->release();
  expect_report("a MTLComputeCommandEncoder is released without endEncoding");
}

HOST_TEST(commit_twice_and_late_calls) {
  Fixture t;
  MTL::CommandBuffer* commands = t.queue->commandBuffer();
  commands->waitUntilCompleted();
  expect_report("waitUntilCompleted before commit");
  t.run(commands);
  commands->commit();
  expect_report("commit after commit");
  commands->addCompletedHandler(MTL::HandlerFunction([](MTL::CommandBuffer*) {}));
  expect_report("addCompletedHandler: after commit");
  commands->computeCommandEncoder()->endEncoding();
  expect_report("computeCommandEncoder after commit");
}

HOST_TEST(waiting_inside_a_handler) {
  Fixture t;
  MTL::CommandBuffer* commands = t.queue->commandBuffer();
  commands->addCompletedHandler(MTL::HandlerFunction([](MTL::CommandBuffer* c) { c->waitUntilCompleted(); }));
  t.run(commands);
  expect_report("waitUntilCompleted inside one of its handlers");
}

HOST_TEST(a_dispatch_without_a_pipeline) {
  Fixture t;
  MTL::ComputeCommandEncoder* encoder = t.queue->commandBuffer()->computeCommandEncoder();
  encoder->dispatchThreads(MTL::Size::Make(32, 1, 1), MTL::Size::Make(32, 1, 1));
  expect_report("dispatchThreads: before setComputePipelineState:");
  encoder->endEncoding();
}

HOST_TEST(dispatch_sizes) {
  Fixture t;
  MTL::ComputeCommandEncoder* encoder = t.queue->commandBuffer()->computeCommandEncoder();
  dispatch(encoder, t.add, t.in, t.out, 0);
  expect_report("a dispatch of no threads");
  encoder->dispatchThreadgroups(MTL::Size::Make(1, 1, 1), MTL::Size::Make(1024, 2, 1));
  expect_report("2048 threads per threadgroup, the pipeline allows 1024");
  encoder->endEncoding();
}

HOST_TEST(a_pipeline_with_fewer_threads) {
  Fixture t;
  NS::Error* error = nullptr;
  const char* source =
      "#include <metal_stdlib>\nusing namespace metal;\n"
      "[[max_total_threads_per_threadgroup(64)]] kernel void f(device float* out [[buffer(0)]]) { out[0] = 1; }\n";
  MTL::Library* library = t.released(device()->newLibrary(string(source), nullptr, &error));
  CHECK(library != nullptr);
  auto* descriptor = t.released(MTL::ComputePipelineDescriptor::alloc()->init());
  descriptor->setComputeFunction(t.released(library->newFunction(string("f"))));
  descriptor->setThreadGroupSizeIsMultipleOfThreadExecutionWidth(true);
  auto* p = t.released(device()->newComputePipelineState(descriptor, MTL::PipelineOptionNone, nullptr, &error));
  CHECK(p->maxTotalThreadsPerThreadgroup() == 64);
  MTL::ComputeCommandEncoder* encoder = t.queue->commandBuffer()->computeCommandEncoder();
  encoder->setComputePipelineState(p);
  encoder->setBuffer(t.out, 0, 0);
  encoder->dispatchThreadgroups(MTL::Size::Make(1, 1, 1), MTL::Size::Make(96, 1, 1));
  expect_report("96 threads per threadgroup, the pipeline allows 64");
  encoder->dispatchThreadgroups(MTL::Size::Make(1, 1, 1), MTL::Size::Make(33, 1, 1));
  expect_report("33 threads break the promise");
  encoder->endEncoding();
}

HOST_TEST(bindings) {
  Fixture t;
  MTL::ComputeCommandEncoder* encoder = t.queue->commandBuffer()->computeCommandEncoder();
  encoder->setBuffer(t.in, 0, 31);
  expect_report("with index 31; Metal has 0 to 30");
  encoder->setBuffer(t.in, 256, 0);
  expect_report("offset 256 lies behind its 256 bytes");
  const std::vector<char> big(4097);
  encoder->setBytes(big.data(), big.size(), 0);
  expect_report("setBytes of 4097 bytes at index 0");
  encoder->setBufferOffset(0, 7);
  expect_report("where no buffer is bound");
  encoder->setThreadgroupMemoryLength(24, 0);
  expect_report("24 is no multiple of 16");
  encoder->memoryBarrier(MTL::BarrierScopeTextures);
  expect_report("without BarrierScopeBuffers orders no buffer");
  encoder->endEncoding();
}

HOST_TEST(offsets_of_constants) {
  Fixture t;
  MTL::ComputePipelineState* scale = t.released(pipeline("scale"));
  MTL::CommandBuffer* commands = t.queue->commandBuffer();
  MTL::ComputeCommandEncoder* encoder = commands->computeCommandEncoder();
  encoder->setBuffer(t.in, 2, 2);
  dispatch(encoder, scale, t.in, t.out, 32);
  encoder->endEncoding();
  expect_report("offset 2 of a constant is no multiple of 4");
  take_reports();  // the kernel side may find the alignment, too
}

HOST_TEST(an_unbound_buffer_is_reported) {
  Fixture t;
  MTL::ComputeCommandEncoder* encoder = t.queue->commandBuffer()->computeCommandEncoder();
  encoder->setComputePipelineState(t.add);
  encoder->setBuffer(t.in, 0, 0);
  encoder->dispatchThreads(MTL::Size::Make(32, 1, 1), MTL::Size::Make(32, 1, 1));
  encoder->endEncoding();
  expect_report("add_step");
}

HOST_TEST(threadgroup_memory_beyond_the_limit) {
  Fixture t;
  NS::Error* error = nullptr;
  const char* source =
      "#include <metal_stdlib>\nusing namespace metal;\n"
      "kernel void f(device float* out [[buffer(0)]], threadgroup float* t [[threadgroup(0)]]) { t[0] = 1; out[0] = "
      "t[0]; }\n";
  MTL::Library* library = t.released(device()->newLibrary(string(source), nullptr, &error));
  CHECK(library != nullptr);
  MTL::Function* function = t.released(library->newFunction(string("f")));
  auto* p = t.released(device()->newComputePipelineState(function, &error));
  MTL::ComputeCommandEncoder* encoder = t.queue->commandBuffer()->computeCommandEncoder();
  encoder->setComputePipelineState(p);
  encoder->setBuffer(t.out, 0, 0);
  encoder->setThreadgroupMemoryLength(32768 + 16, 0);
  encoder->dispatchThreads(MTL::Size::Make(1, 1, 1), MTL::Size::Make(1, 1, 1));
  encoder->endEncoding();
  expect_report("32784 bytes of threadgroup memory, the device has 32768");
}

HOST_TEST(a_command_buffer_keeps_what_it_uses) {
  Fixture t;
  MTL::Buffer* in = buffer(64, "kept");
  MTL::CommandBuffer* commands = t.queue->commandBuffer();
  MTL::ComputeCommandEncoder* encoder = commands->computeCommandEncoder();
  dispatch(encoder, t.add, in, t.out, 64);
  encoder->endEncoding();
  in->release();
  t.run(commands);
  CHECK(floats(t.out)[0] == 1);
}

HOST_TEST(without_references_a_released_buffer_is_found) {
  set("check", "1");
  set("lazy_ms", "60000");
  Fixture t;
  MTL::Buffer* in = buffer(64, "dropped");
  MTL::CommandBuffer* commands = t.queue->commandBufferWithUnretainedReferences();
  MTL::ComputeCommandEncoder* encoder = commands->computeCommandEncoder();
  dispatch(encoder, t.add, in, t.out, 64);
  encoder->endEncoding();
  in->release();
  t.run(commands);
  expect_report("dropped");
  take_reports();
}

HOST_TEST(without_references_a_released_pipeline_is_found) {
  set("lazy_ms", "60000");
  Fixture t;
  MTL::ComputePipelineState* p = pipeline("add_step");
  MTL::CommandBuffer* commands = t.queue->commandBufferWithUnretainedReferences();
  MTL::ComputeCommandEncoder* encoder = commands->computeCommandEncoder();
  dispatch(encoder, p, t.in, t.out, 64);
  encoder->endEncoding();
  p->release();
  t.run(commands);
  expect_report("add_step: its pipeline state was released before the command buffer had completed");
}

HOST_TEST(a_queue_has_a_maximum_of_unfinished_buffers) {
  Released released;
  MTL::CommandQueue* queue = released(device()->newCommandQueue(2));
  emulator_counters(1);
  for (int i = 0; i < 6; ++i) queue->commandBuffer()->commit();
  MTL::CommandBuffer* last = queue->commandBuffer();
  last->commit();
  last->waitUntilCompleted();
  queue->commandBuffer();
  queue->commandBuffer();
  queue->commandBuffer();
  expect_report("2 command buffers wait for their commit, its maximum");
}

HOST_TEST(a_command_buffer_fails_on_request) {
  set("fail_command_buffer", "1");
  Fixture t;
  for (int i = 0; i < 3; ++i) {
    const bool fails = i == 1;
    floats(t.out)[0] = 0;
    std::atomic<bool> handled{false};
    MTL::CommandBuffer* commands = t.queue->commandBuffer();
    commands->addCompletedHandler(MTL::HandlerFunction([&](MTL::CommandBuffer*) { handled = true; }));
    MTL::ComputeCommandEncoder* encoder = commands->computeCommandEncoder();
    dispatch(encoder, t.add, t.in, t.out, 64);
    encoder->endEncoding();
    t.run(commands);
    CHECK(handled);
    CHECK((commands->status() == MTL::CommandBufferStatusError) == fails);
    CHECK((commands->error() != nullptr) == fails);
    CHECK(floats(t.out)[0] == (fails ? 0 : 1));
    if (fails) {
      CHECK(commands->error()->code() == MTL::CommandBufferErrorOutOfMemory);
      CHECK(std::strcmp(commands->error()->domain()->utf8String(), "MTLCommandBufferErrorDomain") == 0);
    }
  }
  set("command_buffer_error", "2");
  set("fail_command_buffer", "0");
  MTL::CommandBuffer* commands = t.queue->commandBuffer();
  t.run(commands);
  CHECK(commands->error()->code() == MTL::CommandBufferErrorTimeout);
}
