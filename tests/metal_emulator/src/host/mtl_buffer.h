#pragma once
// MTLBuffer. Its memory and the checks of what kernels do to it are the kernel side's (kernel/memory.h).

#include <optional>

#include "block.h"
#include "kernel/memory.h"
#include "labelled.h"

namespace emulator::host {

enum class StorageMode : UInteger { shared = 0, managed = 1, private_memory = 2, memoryless = 3 };
enum class HazardTracking : UInteger { automatic = 0, untracked = 1, tracked = 2 };

struct MTLBuffer final : Instance<MTLBuffer, Labelled> {
  static constexpr const char* kName = "MTLBuffer";
  using Deallocator = Block<void*, UInteger>;

  MTLBuffer(uint8_t* memory, UInteger size, UInteger resource_options, BufferId buffer_id)
      : bytes(memory), byte_length(size), options(resource_options), id(buffer_id) {}
  ~MTLBuffer() override;

  StorageMode storage_mode() const { return static_cast<StorageMode>((options >> 4) & 0xf); }
  bool contains(UInteger offset, UInteger size) const { return offset <= byte_length && size <= byte_length - offset; }

  uint8_t* bytes;
  UInteger byte_length;
  UInteger options;
  BufferId id;
  std::optional<Deallocator> deallocator;  // of newBufferWithBytesNoCopy

 protected:
  void label_changed() override { set_label(id, label_text()); }
};

/// The selectors of MTLDevice that make buffers; nil where Metal gives nil.
MTLBuffer* new_buffer(UInteger length, UInteger options);
MTLBuffer* new_buffer_with_bytes(const void* bytes, UInteger length, UInteger options);
MTLBuffer* new_buffer_no_copy(void* bytes, UInteger length, UInteger options, const void* deallocator);

}  // namespace emulator::host
