#include <cstring>

#include "harness.h"

using namespace host_test;

namespace {

MTL::ResidencySet* new_set(Released& released) {
  NS::Error* error = nullptr;
  auto* descriptor = released(MTL::ResidencySetDescriptor::alloc()->init());
  descriptor->setLabel(string("weights"));
  return released(device()->newResidencySet(descriptor, &error));
}

enum class Resident { no, by_use_resource, by_queue, by_command_buffer, not_committed };

/// A kernel reads a buffer through an address that lies in another one.
void through_a_pointer(Resident how) {
  set("check", "1");
  Released released;
  MTL::CommandQueue* queue = released(device()->newCommandQueue());
  MTL::ComputePipelineState* p = released(pipeline("through_pointer"));
  MTL::Buffer* target = released(buffer(64, "target"));
  MTL::Buffer* table = released(buffer(2, "table"));
  MTL::Buffer* out = released(buffer(64, "out"));
  floats(target)[7] = 3;
  const uint64_t address = target->gpuAddress();
  std::memcpy(table->contents(), &address, sizeof address);
  MTL::ResidencySet* set = new_set(released);
  set->addAllocation(target);
  if (how != Resident::not_committed) set->commit();
  if (how == Resident::by_queue || how == Resident::not_committed) queue->addResidencySet(set);
  MTL::CommandBuffer* commands = queue->commandBuffer();
  if (how == Resident::by_command_buffer) commands->useResidencySet(set);
  MTL::ComputeCommandEncoder* encoder = commands->computeCommandEncoder();
  if (how == Resident::by_use_resource) encoder->useResource(target, MTL::ResourceUsageRead);
  dispatch(encoder, p, table, out, 64);
  encoder->endEncoding();
  commands->commit();
  commands->waitUntilCompleted();
  if (how != Resident::no && how != Resident::not_committed) CHECK(floats(out)[7] == 3);
}

}  // namespace

HOST_TEST(a_resource_in_use_is_resident) { through_a_pointer(Resident::by_use_resource); }
HOST_TEST(a_set_of_the_queue_is_resident) { through_a_pointer(Resident::by_queue); }
HOST_TEST(a_set_of_the_command_buffer_is_resident) { through_a_pointer(Resident::by_command_buffer); }
HOST_TEST(what_is_not_resident_is_reported) {
  through_a_pointer(Resident::no);
  expect_report("target");
  take_reports();
}
HOST_TEST(a_set_counts_from_its_commit) {
  through_a_pointer(Resident::not_committed);
  expect_report("target");
  take_reports();
}

HOST_TEST(sets_hold_their_buffers) {
  Released released;
  MTL::ResidencySet* set = new_set(released);
  MTL::Buffer* b = buffer(1024, "held");
  const MTL::Allocation* both[] = {b, b};
  set->addAllocations(both, 2);
  CHECK(set->allocationCount() == 1 && set->containsAllocation(b));
  set->requestResidency();
  expect_report("requestResidency with changes that were not committed");
  set->commit();
  set->requestResidency();
  CHECK(set->allocatedSize() == 4096);
  b->release();
  set->removeAllAllocations();
  set->commit();
  CHECK(set->allocationCount() == 0);
}

HOST_TEST(before_macos_15_there_are_no_sets) {
  set("os_version", "14.6");
  CHECK(MTL::ResidencySetDescriptor::alloc() == nullptr);
}

HOST_DEATH_TEST(before_macos_15_the_selector_dies_by_name,
                "-[MTLDevice newResidencySetWithDescriptor:error:] needs macOS 15.0") {
  set("os_version", "14.6");
  NS::Error* error = nullptr;
  device()->newResidencySet(nullptr, &error);
}
