// Objects, pools, blocks, and the message dispatch.
#include <functional>
#include <memory>
#include <thread>

#include "harness.h"

using namespace host_test;

HOST_TEST(messages_of_every_calling_convention) {
  // Integers and pointers, structures above 16 bytes in both directions, doubles, bool.
  const MTL::Size limit = device()->maxThreadsPerThreadgroup();
  CHECK(limit.width == 1024 && limit.height == 1024 && limit.depth == 1024);
  NS::ProcessInfo* info = NS::ProcessInfo::processInfo();
  set("os_version", "15.3");
  const NS::OperatingSystemVersion version = info->operatingSystemVersion();
  CHECK(version.majorVersion == 15 && version.minorVersion == 3 && version.patchVersion == 0);
  CHECK(info->isOperatingSystemAtLeastVersion({15, 3, 0}));
  CHECK(!info->isOperatingSystemAtLeastVersion({15, 3, 1}));
  CHECK(!info->isOperatingSystemAtLeastVersion({26, 0, 0}));
  CHECK(info->systemUptime() > 0);
  CHECK(NS::Number::number(2.5f)->floatValue() == 2.5f);
  CHECK(NS::Number::number(2.5)->doubleValue() == 2.5);
}

HOST_TEST(message_to_nil_is_zero) {
  MTL::Buffer* none = nullptr;
  MTL::CommandBuffer* no_commands = nullptr;
  CHECK(none->length() == 0);
  CHECK(none->contents() == nullptr);
  CHECK(no_commands->GPUStartTime() == 0.0);
  none->release();
}

HOST_TEST(a_pool_releases_at_its_end) {
  const auto live = [] { return std::string(emulator_live_objects()).find("MTLBuffer") != std::string::npos; };
  NS::AutoreleasePool* outer = NS::AutoreleasePool::alloc()->init();
  buffer(4, "in the pool")->autorelease();
  NS::AutoreleasePool* inner = NS::AutoreleasePool::alloc()->init();
  string("something else");
  inner->release();
  CHECK(live());
  outer->release();
  CHECK(!live());
}

HOST_TEST(an_outer_pool_ends_the_inner_one) {
  NS::AutoreleasePool* outer = NS::AutoreleasePool::alloc()->init();
  NS::AutoreleasePool::alloc()->init();
  buffer(4, "innermost")->autorelease();
  outer->release();
}

HOST_TEST(autorelease_without_a_pool_is_reported) {
  std::thread([] { NS::String::string("loose", NS::UTF8StringEncoding); }).join();
  expect_report("NSString is autoreleased on a thread without an NSAutoreleasePool");
}

HOST_TEST(retain_and_release_count) {
  MTL::Buffer* b = buffer(4, "counted");
  CHECK(b->retainCount() == 1);
  b->retain();
  CHECK(b->retainCount() == 2);
  b->release();
  b->release();
}

HOST_TEST(what_is_not_released_shows) {
  MTL::Buffer* b = buffer(4, "leaked");
  CHECK(std::string(emulator_live_objects()).find("MTLBuffer\t1\n") != std::string::npos);
  b->release();
}

HOST_DEATH_TEST(a_release_too_many_dies, "-[MTLBuffer release] was sent to") {
  MTL::Buffer* b = buffer(4, "gone");
  b->release();
  b->release();
}

HOST_DEATH_TEST(a_use_after_the_last_release_dies, "-[MTLBuffer length] was sent to") {
  MTL::Buffer* b = buffer(4, "gone");
  b->release();
  b->length();
}

HOST_DEATH_TEST(an_autoreleased_object_is_not_ours_to_release, "an object that has been deallocated") {
  NS::AutoreleasePool* pool = NS::AutoreleasePool::alloc()->init();
  string("not ours")->release();
  pool->release();
}

HOST_DEATH_TEST(a_selector_that_is_not_modelled_dies_by_name,
                "-[MTLDevice newHeapWithDescriptor:] is not modelled by the emulator") {
  device()->newHeap(static_cast<const MTL::HeapDescriptor*>(nullptr));
}

HOST_DEATH_TEST(a_class_that_is_not_modelled_dies_by_name,
                "+[MTL4CommandQueueDescriptor alloc] is not modelled by the emulator") {
  MTL4::CommandQueueDescriptor::alloc();
}

HOST_DEATH_TEST(indirect_command_buffers_die_by_name, "newIndirectCommandBufferWithDescriptor") {
  device()->newIndirectCommandBuffer(nullptr, 1, MTL::ResourceStorageModeShared);
}

HOST_TEST(a_block_keeps_what_it_captured) {
  // metal-cpp wraps a std::function into a block with a __block variable: copied to the heap with the handler.
  Released released;
  auto alive = std::make_shared<int>(7);
  const std::weak_ptr<int> watch = alive;
  int seen = 0;
  {
    NS::AutoreleasePool* pool = NS::AutoreleasePool::alloc()->init();
    MTL::CommandQueue* queue = released(device()->newCommandQueue());
    MTL::CommandBuffer* commands = queue->commandBuffer();
    commands->addCompletedHandler(MTL::HandlerFunction([alive, &seen](MTL::CommandBuffer*) { seen = *alive; }));
    alive.reset();
    CHECK(!watch.expired());
    commands->commit();
    commands->waitUntilCompleted();
    pool->release();
  }
  CHECK(seen == 7);
  CHECK(watch.expired());
}
