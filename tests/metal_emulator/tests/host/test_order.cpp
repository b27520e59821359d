// Hazards: what Metal orders by itself, and what the program must.
#include "harness.h"

using namespace host_test;

namespace {

enum class Between { nothing, fence, event, host_wait, handler };

struct Fixture {
  Released released;
  MTL::CommandQueue* queue = nullptr;
  MTL::ComputePipelineState* add = nullptr;
  MTL::Buffer *a, *b, *c;

  explicit Fixture(MTL::ResourceOptions options = MTL::ResourceStorageModeShared) {
    set("check", "1");
    queue = released(device()->newCommandQueue());
    add = released(pipeline("add_step"));
    a = released(buffer(64, "a", options));
    b = released(buffer(64, "b", options));
    c = released(buffer(64, "c", options));
  }
};

constexpr MTL::ResourceOptions kUntracked = MTL::ResourceHazardTrackingModeUntracked;

/// a -> b in one encoder, b -> c in the next one, of the same command buffer or of another.
void two_encoders(MTL::ResourceOptions options, Between between, bool two_buffers) {
  Fixture t(options);
  MTL::Fence* fence = t.released(device()->newFence());
  MTL::Event* event = t.released(device()->newEvent());
  MTL::CommandBuffer* commands = t.queue->commandBuffer();
  MTL::ComputeCommandEncoder* encoder = commands->computeCommandEncoder(MTL::DispatchTypeConcurrent);
  dispatch(encoder, t.add, t.a, t.b, 64);
  if (between == Between::fence) encoder->updateFence(fence);
  encoder->endEncoding();
  if (two_buffers) {
    if (between == Between::event) commands->encodeSignalEvent(event, 1);
    commands->commit();
    if (between == Between::host_wait) commands->waitUntilCompleted();
    commands = t.queue->commandBuffer();
    if (between == Between::event) commands->encodeWait(event, 1);
  }
  encoder = commands->computeCommandEncoder(MTL::DispatchTypeConcurrent);
  if (between == Between::fence) encoder->waitForFence(fence);
  dispatch(encoder, t.add, t.b, t.c, 64);
  encoder->endEncoding();
  commands->commit();
  commands->waitUntilCompleted();
  CHECK(floats(t.c)[5] == 2);
}

void one_encoder(MTL::DispatchType type, bool barrier, MTL::ResourceOptions options) {
  Fixture t(options);
  MTL::CommandBuffer* commands = t.queue->commandBuffer();
  MTL::ComputeCommandEncoder* encoder = commands->computeCommandEncoder(type);
  dispatch(encoder, t.add, t.a, t.b, 64);
  if (barrier) encoder->memoryBarrier(MTL::BarrierScopeBuffers);
  dispatch(encoder, t.add, t.b, t.c, 64);
  encoder->endEncoding();
  commands->commit();
  commands->waitUntilCompleted();
}

}  // namespace

HOST_TEST(a_serial_encoder_orders) { one_encoder(MTL::DispatchTypeSerial, false, 0); }
HOST_TEST(a_serial_encoder_orders_untracked) { one_encoder(MTL::DispatchTypeSerial, false, kUntracked); }
HOST_TEST(a_barrier_orders) { one_encoder(MTL::DispatchTypeConcurrent, true, 0); }
HOST_TEST(a_barrier_orders_untracked) { one_encoder(MTL::DispatchTypeConcurrent, true, kUntracked); }

HOST_TEST(a_missing_barrier_is_a_hazard) {
  one_encoder(MTL::DispatchTypeConcurrent, false, 0);
  expect_report("hazard");
  take_reports();
}

HOST_TEST(a_barrier_of_resources_orders) {
  Fixture t;
  MTL::CommandBuffer* commands = t.queue->commandBuffer();
  MTL::ComputeCommandEncoder* encoder = commands->computeCommandEncoder(MTL::DispatchTypeConcurrent);
  dispatch(encoder, t.add, t.a, t.b, 64);
  const MTL::Resource* resources[] = {t.b};
  encoder->memoryBarrier(resources, 1);
  dispatch(encoder, t.add, t.b, t.c, 64);
  encoder->endEncoding();
  commands->commit();
  commands->waitUntilCompleted();
}

HOST_TEST(tracked_buffers_are_ordered_between_encoders) { two_encoders(0, Between::nothing, false); }
HOST_TEST(tracked_buffers_are_ordered_between_command_buffers) { two_encoders(0, Between::nothing, true); }

HOST_TEST(untracked_buffers_between_encoders_are_a_hazard) {
  two_encoders(kUntracked, Between::nothing, false);
  expect_report("hazard");
  take_reports();
}
HOST_TEST(untracked_buffers_between_command_buffers_are_a_hazard) {
  two_encoders(kUntracked, Between::nothing, true);
  expect_report("hazard");
  take_reports();
}
HOST_TEST(a_fence_orders_untracked_buffers) { two_encoders(kUntracked, Between::fence, false); }
HOST_TEST(a_fence_orders_untracked_command_buffers) { two_encoders(kUntracked, Between::fence, true); }
HOST_TEST(an_event_orders_untracked_command_buffers) { two_encoders(kUntracked, Between::event, true); }
HOST_TEST(a_host_that_waited_orders_untracked_command_buffers) { two_encoders(kUntracked, Between::host_wait, true); }

HOST_TEST(a_barrier_orders_no_other_encoder) {
  Fixture t(kUntracked);
  MTL::CommandBuffer* commands = t.queue->commandBuffer();
  MTL::ComputeCommandEncoder* encoder = commands->computeCommandEncoder(MTL::DispatchTypeConcurrent);
  dispatch(encoder, t.add, t.a, t.b, 64);
  encoder->memoryBarrier(MTL::BarrierScopeBuffers);
  encoder->endEncoding();
  encoder = commands->computeCommandEncoder(MTL::DispatchTypeConcurrent);
  dispatch(encoder, t.add, t.b, t.c, 64);
  encoder->endEncoding();
  commands->commit();
  commands->waitUntilCompleted();
  expect_report("hazard");
  take_reports();
}

HOST_TEST(a_fence_that_nobody_updated) {
  Fixture t;
  MTL::Fence* fence = t.released(device()->newFence());
  fence->setLabel(string("lonely"));
  MTL::CommandBuffer* commands = t.queue->commandBuffer();
  MTL::ComputeCommandEncoder* encoder = commands->computeCommandEncoder();
  encoder->waitForFence(fence);
  encoder->endEncoding();
  commands->commit();
  commands->waitUntilCompleted();
  expect_report("fence 'lonely', which no earlier encoder updated");
}
