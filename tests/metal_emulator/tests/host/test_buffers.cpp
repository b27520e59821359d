#include <cstdlib>
#include <cstring>

#include "harness.h"

using namespace host_test;

namespace {
constexpr size_t kPage = 16384;

struct Pages {
  explicit Pages(size_t count) : memory(static_cast<char*>(std::aligned_alloc(kPage, count * kPage))) {}
  ~Pages() { std::free(memory); }
  char* memory;
};
}  // namespace

HOST_TEST(no_copy_takes_whole_pages) {
  const Pages pages(2);
  bool freed = false;
  bool* const freed_at = &freed;
  MTL::Buffer* b = device()->newBuffer(pages.memory, 2 * kPage, MTL::ResourceStorageModeShared,
                                       ^(void* pointer, NS::UInteger length) {
                                         *freed_at = pointer != nullptr && length == 2 * kPage;
                                       });
  CHECK(b != nullptr && b->contents() == pages.memory);
  b->release();
  CHECK(freed);
}

HOST_TEST(no_copy_off_a_page_is_nil) {
  const Pages pages(2);
  // 4 KiB is this machine's page, not the Mac's.
  CHECK(device()->newBuffer(pages.memory + 4096, kPage, MTL::ResourceStorageModeShared, nullptr) == nullptr);
  expect_report("must be multiples of the page size (16384)");
  CHECK(device()->newBuffer(pages.memory, kPage + 4096, MTL::ResourceStorageModeShared, nullptr) == nullptr);
  expect_report("must be multiples of the page size (16384)");
  CHECK(device()->newBuffer(pages.memory, kPage, MTL::ResourceStorageModePrivate, nullptr) == nullptr);
  expect_report("storage must be shared");
}

HOST_TEST(zero_length_is_nil) {
  CHECK(device()->newBuffer(NS::UInteger{0}, MTL::ResourceStorageModeShared) == nullptr);
  expect_report("length of 0");
}

HOST_TEST(private_contents_are_null) {
  MTL::Buffer* b = buffer(4, "hidden", MTL::ResourceStorageModePrivate);
  CHECK(b->contents() == nullptr);
  expect_report("MTLBuffer 'hidden': contents() of a buffer in private storage");
  b->release();
}

HOST_TEST(managed_storage_is_refused) {
  CHECK(device()->newBuffer(64, MTL::ResourceStorageModeManaged) == nullptr);
  expect_report("storage mode 1");
}

HOST_TEST(buffers_answer_what_they_are) {
  const float values[] = {1, 2, 3};
  MTL::Buffer* b = device()->newBuffer(values, sizeof values, MTL::ResourceHazardTrackingModeUntracked);
  CHECK(b->length() == 12 && std::memcmp(b->contents(), values, 12) == 0);
  CHECK(b->hazardTrackingMode() == MTL::HazardTrackingModeUntracked);
  CHECK(b->storageMode() == MTL::StorageModeShared);
  CHECK(b->allocatedSize() == kPage);
  CHECK(b->gpuAddress() != 0);
  b->setLabel(string("three"));
  CHECK(std::strcmp(b->label()->utf8String(), "three") == 0);
  b->release();
}

HOST_TEST(new_buffers_are_zero) {
  MTL::Buffer* b = buffer(1000, "fresh");
  for (int i = 0; i < 1000; ++i) CHECK(floats(b)[i] == 0);
  b->release();
}

HOST_TEST(an_allocation_fails_on_request) {
  set("fail_allocation", "1");
  MTL::Buffer* first = device()->newBuffer(64, MTL::ResourceStorageModeShared);
  CHECK(first != nullptr);
  CHECK(device()->newBuffer(64, MTL::ResourceStorageModeShared) == nullptr);
  MTL::Buffer* third = device()->newBuffer(64, MTL::ResourceStorageModeShared);
  CHECK(third != nullptr);
  first->release();
  third->release();
}
