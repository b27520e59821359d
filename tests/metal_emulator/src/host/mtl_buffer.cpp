#include "mtl_buffer.h"

#include <cstdio>
#include <cstring>

#include "classes.h"
#include "kernel/counters.h"
#include "kernel/report.h"
#include "kernel/settings.h"
#include "mtl_device.h"

namespace emulator::host {
namespace {

bool hazard_tracked(UInteger options) {
  // Buffers of a device are tracked unless told otherwise.
  return static_cast<HazardTracking>((options >> 8) & 0x3) != HazardTracking::untracked;
}

bool acceptable(const char* selector, UInteger length, UInteger options) {
  if (length == 0) {
    report("api", std::string(selector) + " with a length of 0 gives nil; Metal has no empty buffers");
    return false;
  }
  const auto mode = static_cast<StorageMode>((options >> 4) & 0xf);
  if (mode == StorageMode::managed || mode == StorageMode::memoryless) {
    report("api", std::string(selector) + ": storage mode " + std::to_string(static_cast<UInteger>(mode)) +
                      " is not one of Apple silicon's buffers; use shared or private");
    return false;
  }
  if (length > max_buffer_length() || fails_now(settings().fail_allocation)) return false;
  ++calls().new_buffers;
  return true;
}

struct BufferMethods : MethodsOf<MTLBuffer> {
  std::string name() const { return "MTLBuffer '" + self()->label_text() + "'"; }

  void* contents() const {
    if (self()->storage_mode() != StorageMode::private_memory) return self()->bytes;
    report("api", name() + ": contents() of a buffer in private storage is null; copy it into a shared one");
    return nullptr;
  }
  void did_modify_range(Range) const {
    report("api", name() + ": didModifyRange: is for managed storage, which Apple silicon does not have");
  }
  UInteger length() const { return self()->byte_length; }
  UInteger allocated_size() const { return (self()->byte_length + page_size - 1) / page_size * page_size; }
  uint64_t gpu_address() const { return reinterpret_cast<uint64_t>(self()->bytes); }
  UInteger storage_mode() const { return static_cast<UInteger>(self()->storage_mode()); }
  UInteger cpu_cache_mode() const { return self()->options & 0xf; }
  UInteger hazard_tracking_mode() const {
    return static_cast<UInteger>(hazard_tracked(self()->options) ? HazardTracking::tracked : HazardTracking::untracked);
  }
  UInteger resource_options() const { return self()->options; }
  UInteger set_purgeable_state(UInteger state) const {
    constexpr UInteger kKeepCurrent = 1, kNonVolatile = 2;
    if (state != kKeepCurrent && state != kNonVolatile)
      report("api", name() + ": setPurgeableState: is modelled for KeepCurrent and NonVolatile");
    return kNonVolatile;
  }
};

}  // namespace

MTLBuffer::~MTLBuffer() {
  free_buffer(id);
  if (deallocator) (*deallocator)(bytes, byte_length);
}

MTLBuffer* new_buffer(UInteger length, UInteger options) {
  if (!acceptable("newBufferWithLength:options:", length, options)) return nullptr;
  BufferId id = 0;
  auto* bytes = static_cast<uint8_t*>(allocate(length, hazard_tracked(options), id));
  return bytes ? new MTLBuffer(bytes, length, options, id) : nullptr;
}

MTLBuffer* new_buffer_with_bytes(const void* bytes, UInteger length, UInteger options) {
  MTLBuffer* buffer = new_buffer(length, options);
  if (buffer) std::memcpy(buffer->bytes, bytes, length);
  return buffer;
}

MTLBuffer* new_buffer_no_copy(void* bytes, UInteger length, UInteger options, const void* deallocator) {
  const std::string selector = "newBufferWithBytesNoCopy:length:options:deallocator:";
  if (!acceptable(selector.c_str(), length, options)) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(bytes);
  if (!bytes || address % page_size != 0 || length % page_size != 0) {
    char text[64];
    std::snprintf(text, sizeof text, "%p and %lu", bytes, length);
    report("api", selector + ": address and length must be multiples of the page size (16384), got " + text +
                      "; the result is nil");
    return nullptr;
  }
  if (((options >> 4) & 0xf) != static_cast<UInteger>(StorageMode::shared)) {
    report("api", selector + ": the bytes are the CPU's, storage must be shared; the result is nil");
    return nullptr;
  }
  const BufferId id = register_buffer(bytes, length, hazard_tracked(options));
  auto* buffer = new MTLBuffer(static_cast<uint8_t*>(bytes), length, options, id);
  if (deallocator) buffer->deallocator.emplace(deallocator);
  return buffer;
}

void install_buffer() {
  define<MTLBuffer>()
      .method<&MTLBuffer::label>("label")
      .method<&MTLBuffer::setLabel>("setLabel:")
      .method<&HasDevice::device>("device")
      .method<&BufferMethods::contents>("contents")
      .method<&BufferMethods::did_modify_range>("didModifyRange:")
      .method<&BufferMethods::length>("length")
      .method<&BufferMethods::allocated_size>("allocatedSize")
      .method<&BufferMethods::gpu_address>("gpuAddress", {13, 0})
      .method<&BufferMethods::storage_mode>("storageMode")
      .method<&BufferMethods::cpu_cache_mode>("cpuCacheMode")
      .method<&BufferMethods::hazard_tracking_mode>("hazardTrackingMode")
      .method<&BufferMethods::resource_options>("resourceOptions")
      .method<&BufferMethods::set_purgeable_state>("setPurgeableState:");
}

}  // namespace emulator::host
