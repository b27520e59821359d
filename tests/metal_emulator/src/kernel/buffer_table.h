#pragma once
// What stands behind the ids of memory.h, for the executor and its checks.

#include <atomic>
#include <cstdint>
#include <string>

#include "memory.h"

namespace emulator {

/// Who wrote and who read a byte last, see checker.h.
struct ShadowCell {
  uint64_t write = 0;
  uint64_t read = 0;
};

/// A buffer and the shadows of its bytes. Entries are never freed: a stale pointer must find its name.
struct BufferEntry {
  BufferId id = 0;
  uint8_t* base = nullptr;
  size_t length = 0;
  std::string label;
  std::atomic<bool> live{true};
  bool owned = false;  // from allocate()
  bool hazard_tracked = true;

  // One flag byte a byte: `now` in this dispatch, `ever` since the counters' reset.
  uint8_t* read_flags = nullptr;
  uint8_t* write_flags = nullptr;
  bool flagged = false;                      // some byte has a flag
  uint64_t ever_read = 0, ever_written = 0;  // counts at the end of a freed buffer
  ShadowCell* cells = nullptr;
};
constexpr uint8_t touched_now = 1, touched_ever = 2;

/// nullptr for an unknown id. Takes no lock.
BufferEntry* find_entry(BufferId id);

/// The buffer whose pages hold this address (the newest, where several share a page), living or freed; or nullptr.
BufferEntry* entry_at(uintptr_t address);

BufferId last_buffer_id();

/// Shadow memory of zeroes that costs only what is touched.
void* map_shadow(size_t bytes);
void ensure_flags(BufferEntry& entry);
void ensure_cells(BufferEntry& entry);
/// Zeroes all cells of all buffers.
void clear_cells();

/// Flags of `bit` among `length`.
uint64_t count_flags(const uint8_t* flags, size_t length, uint8_t bit);

/// "'label' (1024 bytes)".
std::string describe(const BufferEntry& entry);

}  // namespace emulator
