#include "mtl_device.h"

#include "classes.h"
#include "darwin.h"
#include "kernel/memory.h"
#include "kernel/settings.h"
#include "mac_models.h"
#include "mtl_binary_archive.h"
#include "mtl_buffer.h"
#include "mtl_command_queue.h"
#include "mtl_compute_pipeline.h"
#include "mtl_event.h"
#include "mtl_library.h"

namespace emulator::host {
namespace {

struct MTLArchitecture final : Instance<MTLArchitecture> {
  static constexpr const char* kName = "MTLArchitecture";
  NSString* name() { return make_string(mac_model().architecture); }
};

uint64_t mebibytes_or(int mebibytes, uint64_t otherwise) {
  return mebibytes > 0 ? static_cast<uint64_t>(mebibytes) << 20 : otherwise;
}

/// MTLGPUFamily: Apple<n> is 1000 + n, and each GPU belongs to the families before its own.
bool supports_family(Integer family) {
  constexpr Integer kMac2 = 2002, kCommon1 = 3001, kCommon3 = 3003, kMetal3 = 5001, kMetal4 = 5002;
  if (family > 1000 && family <= 1000 + mac_model().gpu_family) return true;
  if (family == kMetal4) return system_is_at_least({26, 0});
  return family == kMac2 || (family >= kCommon1 && family <= kCommon3) || family == kMetal3;
}

struct DeviceMethods : MethodsOf<MTLDevice> {
  NSString* name() { return make_string(mac_model().name); }
  MTLArchitecture* architecture() { return autoreleased(new MTLArchitecture); }
  uint64_t registry_id() { return 0x100000abc; }
  bool yes() { return true; }
  bool no() { return false; }
  bool supports_family(Integer family) { return emulator::host::supports_family(family); }

  Size max_threads_per_threadgroup() {
    const auto limit = static_cast<UInteger>(settings().max_threads_per_threadgroup);
    return {limit, limit, limit};
  }
  UInteger max_threadgroup_memory() { return static_cast<UInteger>(settings().threadgroup_memory); }
  UInteger max_buffer_length() { return emulator::host::max_buffer_length(); }
  uint64_t recommended_working_set() { return mebibytes_or(settings().working_set_mib, physical_memory() / 4 * 3); }
  UInteger current_allocated_size() { return allocated_bytes(); }

  MTLCommandQueue* new_queue() { return new MTLCommandQueue(kMaxCommandBuffers); }
  MTLCommandQueue* new_queue_of(UInteger max_command_buffers) { return new MTLCommandQueue(max_command_buffers); }
  MTLCommandQueue* new_queue_with(MTLCommandQueueDescriptor* descriptor) {
    return new MTLCommandQueue(descriptor->max_command_buffers);
  }
  MTLBuffer* new_buffer(UInteger length, UInteger options) { return emulator::host::new_buffer(length, options); }
  MTLBuffer* new_buffer_with_bytes(const void* bytes, UInteger length, UInteger options) {
    return emulator::host::new_buffer_with_bytes(bytes, length, options);
  }
  MTLBuffer* new_buffer_no_copy(void* bytes, UInteger length, UInteger options, const void* deallocator) {
    return emulator::host::new_buffer_no_copy(bytes, length, options, deallocator);
  }
  MTLLibrary* new_library(NSString* source, MTLCompileOptions* options, NSError** error) {
    return emulator::host::new_library(source, options, error);
  }
  MTLComputePipelineState* new_pipeline(MTLFunction* function, NSError** error) {
    return emulator::host::new_pipeline(function, error);
  }
  MTLComputePipelineState* new_pipeline_with(MTLComputePipelineDescriptor* descriptor, UInteger options,
                                             Object** reflection, NSError** error) {
    return new_pipeline_from_descriptor(descriptor, options, reflection, error);
  }
  MTLBinaryArchive* new_binary_archive(MTLBinaryArchiveDescriptor* descriptor, NSError** error) {
    return emulator::host::new_binary_archive(descriptor, error);
  }
  MTLResidencySet* new_residency_set(MTLResidencySetDescriptor* descriptor, NSError** error) {
    return emulator::host::new_residency_set(descriptor, error);
  }
  MTLEvent* new_event() { return new MTLEvent; }
  MTLSharedEvent* new_shared_event() { return new MTLSharedEvent; }
  MTLFence* new_fence() { return new MTLFence; }
};

}  // namespace

MTLDevice* system_device() {
  static auto* device = immortal(new MTLDevice);
  return device;
}

UInteger max_buffer_length() { return mebibytes_or(settings().max_buffer_mib, physical_memory() / 2); }

void install_device() {
  define<MTLArchitecture>().method<&MTLArchitecture::name>("name");
  define<MTLDevice>()
      .method<&DeviceMethods::name>("name")
      .method<&DeviceMethods::architecture>("architecture", {14, 0})
      .method<&DeviceMethods::registry_id>("registryID")
      .method<&DeviceMethods::yes>("hasUnifiedMemory")
      .method<&DeviceMethods::no>("isLowPower")
      .method<&DeviceMethods::no>("isHeadless")
      .method<&DeviceMethods::no>("isRemovable")
      .method<&DeviceMethods::supports_family>("supportsFamily:")
      .method<&DeviceMethods::max_threads_per_threadgroup>("maxThreadsPerThreadgroup")
      .method<&DeviceMethods::max_threadgroup_memory>("maxThreadgroupMemoryLength")
      .method<&DeviceMethods::max_buffer_length>("maxBufferLength")
      .method<&DeviceMethods::recommended_working_set>("recommendedMaxWorkingSetSize")
      .method<&DeviceMethods::current_allocated_size>("currentAllocatedSize")
      .method<&DeviceMethods::new_queue>("newCommandQueue")
      .method<&DeviceMethods::new_queue_of>("newCommandQueueWithMaxCommandBufferCount:")
      .method<&DeviceMethods::new_queue_with>("newCommandQueueWithDescriptor:", {15, 0})
      .method<&DeviceMethods::new_buffer>("newBufferWithLength:options:")
      .method<&DeviceMethods::new_buffer_with_bytes>("newBufferWithBytes:length:options:")
      .method<&DeviceMethods::new_buffer_no_copy>("newBufferWithBytesNoCopy:length:options:deallocator:")
      .method<&DeviceMethods::new_library>("newLibraryWithSource:options:error:")
      .method<&DeviceMethods::new_pipeline>("newComputePipelineStateWithFunction:error:")
      .method<&DeviceMethods::new_pipeline_with>("newComputePipelineStateWithDescriptor:options:reflection:error:")
      .method<&DeviceMethods::new_binary_archive>("newBinaryArchiveWithDescriptor:error:")
      .method<&DeviceMethods::new_residency_set>("newResidencySetWithDescriptor:error:", {15, 0})
      .method<&DeviceMethods::new_event>("newEvent")
      .method<&DeviceMethods::new_shared_event>("newSharedEvent")
      .method<&DeviceMethods::new_fence>("newFence");
}

}  // namespace emulator::host

extern "C" {

void* MTLCreateSystemDefaultDevice() {
  emulator::host::ensure_classes();
  emulator::host::system_device()->retain();
  return emulator::host::system_device();
}

void* MTLCopyAllDevices() {
  auto* all = new emulator::host::NSArray;
  all->objects.push_back(emulator::host::Ref<emulator::host::Object>::adopt(
      static_cast<emulator::host::MTLDevice*>(MTLCreateSystemDefaultDevice())));
  return all;
}

}  // extern "C"
