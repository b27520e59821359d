#include <mach/mach.h>
#include <sys/sysctl.h>

#include <cstring>
#include <vector>

#include "harness.h"

using namespace host_test;

HOST_TEST(the_device_is_the_one_of_the_settings) {
  set("device", "Apple M1 Pro");
  CHECK(std::strcmp(device()->name()->utf8String(), "Apple M1 Pro") == 0);
  CHECK(std::strcmp(device()->architecture()->name()->utf8String(), "applegpu_g13s") == 0);
  CHECK(device()->supportsFamily(MTL::GPUFamilyApple7));
  CHECK(!device()->supportsFamily(MTL::GPUFamilyApple8));
  set("device", "");
  set("gpu_family", "10");
  CHECK(std::strcmp(device()->name()->utf8String(), "Apple M5") == 0);
  CHECK(device()->supportsFamily(MTL::GPUFamilyApple10));
  CHECK(device()->supportsFamily(MTL::GPUFamilyApple7));
  CHECK(device()->supportsFamily(MTL::GPUFamilyMetal3));
}

HOST_TEST(metal_4_needs_macos_26) {
  set("os_version", "26.0");
  CHECK(device()->supportsFamily(MTL::GPUFamilyMetal4));
  set("os_version", "15.6");
  CHECK(!device()->supportsFamily(MTL::GPUFamilyMetal4));
}

HOST_DEATH_TEST(an_unknown_device_dies_by_name, "is no Mac of src/host/mac_models.cpp") {
  set("device", "Apple M99");
  device()->name();
}

HOST_TEST(limits_by_settings) {
  set("working_set_mib", "100");
  set("max_buffer_mib", "1");
  set("threadgroup_memory", "16384");
  set("max_threads_per_threadgroup", "512");
  CHECK(device()->recommendedMaxWorkingSetSize() == 100u << 20);
  CHECK(device()->maxBufferLength() == 1u << 20);
  CHECK(device()->maxThreadgroupMemoryLength() == 16384);
  CHECK(device()->maxThreadsPerThreadgroup().width == 512);
  CHECK(device()->newBuffer((1u << 20) + 1, MTL::ResourceStorageModeShared) == nullptr);
  MTL::ComputePipelineState* p = pipeline("add_step");
  CHECK(p->maxTotalThreadsPerThreadgroup() == 512);
  p->release();
}

HOST_TEST(allocated_size_is_counted) {
  const NS::UInteger before = device()->currentAllocatedSize();
  MTL::Buffer* b = buffer(1 << 20, "4 MB");
  CHECK(device()->currentAllocatedSize() - before >= 4u << 20);
  b->release();
  CHECK(device()->currentAllocatedSize() == before);
}

HOST_TEST(the_footprint_grows_with_what_is_touched) {
  const auto footprint = [] {
    task_vm_info_data_t info;
    mach_msg_type_number_t count = TASK_VM_INFO_COUNT;
    CHECK(task_info(mach_task_self(), TASK_VM_INFO, reinterpret_cast<task_info_t>(&info), &count) == KERN_SUCCESS);
    return info.phys_footprint;
  };
  const uint64_t before = footprint();
  CHECK(before > 0);
  MTL::Buffer* b = buffer(16 << 20, "64 MB");
  std::memset(b->contents(), 1, b->length());
  CHECK(footprint() - before > 60u << 20);
  b->release();
}

HOST_TEST(the_system_build_changes_with_the_version) {
  const auto build = [] {
    char text[32];
    size_t size = sizeof text;
    CHECK(sysctlbyname("kern.osversion", text, &size, nullptr, 0) == 0);
    return std::string(text);
  };
  set("os_version", "15.1");
  const std::string first = build();
  set("os_version", "15.2");
  CHECK(first != build());
  CHECK(first.substr(0, 2) == "24");
  size_t size = 0;
  CHECK(sysctlbyname("no.such.name", nullptr, &size, nullptr, 0) == -1);
}
