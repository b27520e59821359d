#pragma once
// Device memory: what a kernel may touch. Every buffer has an id that is never used again, so a freed buffer
// is told from a living one. Allocations begin at a page (16 KiB) and end before a page without access.

#include <cstddef>
#include <cstdint>
#include <string>

namespace emulator {

using BufferId = uint32_t;  // 0: none
constexpr size_t page_size = 16384;

/// Zeroed memory of `length` bytes, registered. nullptr where the system has none left.
/// hazard_tracked: false for MTLResourceHazardTrackingModeUntracked, see Dispatch::untracked_group.
void* allocate(size_t length, bool hazard_tracked, BufferId& id);

/// Registers memory of others (newBufferWithBytesNoCopy). Two buffers may overlap.
BufferId register_buffer(void* base, size_t length, bool hazard_tracked);

void set_label(BufferId id, const std::string& label);

/// Ends a buffer. Memory of allocate() is released, later access through a stale pointer is a finding.
void free_buffer(BufferId id);

struct BufferInfo {
  uint8_t* base = nullptr;
  size_t length = 0;
  std::string label;
  bool live = false;
};
/// Zeroes for an unknown id; `live` is false after free_buffer, the rest stays for messages.
BufferInfo buffer_info(BufferId id);

/// Bytes of living buffers from allocate().
uint64_t allocated_bytes();

}  // namespace emulator
