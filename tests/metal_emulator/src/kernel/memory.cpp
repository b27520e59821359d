#include "memory.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>

#include "buffer_table.h"
#include "settings.h"

namespace emulator {
namespace {

constexpr size_t max_buffers = size_t{1} << 22;
constexpr size_t kept_freed = 4096;  // freed allocations whose addresses are not used again

// Owner of each 4 KiB page: a table of 1 GiB pieces.
constexpr int page_bits = 12, piece_bits = 30, address_bits = 47;
constexpr size_t pages_per_piece = size_t{1} << (piece_bits - page_bits);
using Piece = std::atomic<BufferId>;

std::atomic<BufferEntry*> entries[max_buffers];
std::atomic<Piece*> pieces[size_t{1} << (address_bits - piece_bits)];
std::atomic<BufferId> newest{0};
std::atomic<uint64_t> allocated{0};
std::mutex table_mutex;

struct Mapping {
  void* base;
  size_t bytes;
};
std::deque<Mapping> freed;

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

/// What allocate() maps: whole pages, and one more without access.
size_t mapped_bytes(size_t length) { return round_up(length, page_size) + page_size; }

void own_pages(const BufferEntry& entry) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(entry.base) >> page_bits;
  const uintptr_t last = (reinterpret_cast<uintptr_t>(entry.base) + (entry.length ? entry.length - 1 : 0)) >> page_bits;
  for (uintptr_t page = first; page <= last; page++) {
    std::atomic<Piece*>& slot = pieces[page >> (piece_bits - page_bits)];
    if (!slot) slot = static_cast<Piece*>(map_shadow(pages_per_piece * sizeof(Piece)));
    slot.load()[page % pages_per_piece] = entry.id;
  }
}

BufferId add(void* base, size_t length, bool owned, bool hazard_tracked) {
  std::lock_guard lock(table_mutex);
  const BufferId id = newest + 1;
  if (id >= max_buffers) {
    fprintf(stderr, "metal emulator: more than %zu buffers in one process; raise max_buffers\n", max_buffers);
    abort();
  }
  auto* entry = new BufferEntry;
  entry->id = id;
  entry->base = static_cast<uint8_t*>(base);
  entry->length = length;
  entry->owned = owned;
  entry->hazard_tracked = hazard_tracked;
  entry->label = "buffer " + std::to_string(id);
  own_pages(*entry);
  entries[id] = entry;
  newest = id;
  return id;
}

void drop_shadows(BufferEntry& entry) {
  if (entry.flagged) {
    entry.ever_read = count_flags(entry.read_flags, entry.length, touched_ever);
    entry.ever_written = count_flags(entry.write_flags, entry.length, touched_ever);
  }
  if (entry.read_flags) munmap(entry.read_flags, entry.length);
  if (entry.write_flags) munmap(entry.write_flags, entry.length);
  if (entry.cells) munmap(entry.cells, entry.length * sizeof(ShadowCell));
  entry.read_flags = entry.write_flags = nullptr;
  entry.cells = nullptr;
}

}  // namespace

void* allocate(size_t length, bool hazard_tracked, BufferId& id) {
  const size_t bytes = mapped_bytes(length);
  // One page more than needed, so that a start at a multiple of page_size is among them.
  void* mapped = mmap(nullptr, bytes + page_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* start = static_cast<uint8_t*>(mapped);
  auto* base = reinterpret_cast<uint8_t*>(round_up(reinterpret_cast<uintptr_t>(start), page_size));
  if (base > start) munmap(start, static_cast<size_t>(base - start));
  munmap(base + bytes, page_size - static_cast<size_t>(base - start));
  if (mprotect(base, bytes - page_size, PROT_READ | PROT_WRITE) != 0) {
    munmap(base, bytes);
    return nullptr;
  }
  id = add(base, length, true, hazard_tracked);
  allocated += length;
  return base;
}

BufferId register_buffer(void* base, size_t length, bool hazard_tracked) {
  return add(base, length, false, hazard_tracked);
}

void set_label(BufferId id, const std::string& label) {
  std::lock_guard lock(table_mutex);
  if (BufferEntry* entry = find_entry(id)) entry->label = label;
}

void free_buffer(BufferId id) {
  std::lock_guard lock(table_mutex);
  BufferEntry* entry = find_entry(id);
  if (!entry || !entry->live) return;
  entry->live = false;
  drop_shadows(*entry);
  if (!entry->owned) return;
  allocated -= entry->length;
  const size_t bytes = mapped_bytes(entry->length);
  // The addresses stay taken for a while, so that a stale pointer meets no newer buffer.
  mmap(entry->base, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  freed.push_back({entry->base, bytes});
  if (freed.size() > kept_freed) {
    munmap(freed.front().base, freed.front().bytes);
    freed.pop_front();
  }
}

BufferInfo buffer_info(BufferId id) {
  std::lock_guard lock(table_mutex);
  const BufferEntry* entry = find_entry(id);
  if (!entry) return {};
  return {entry->base, entry->length, entry->label, entry->live};
}

uint64_t allocated_bytes() { return allocated; }

BufferEntry* find_entry(BufferId id) { return id && id < max_buffers ? entries[id].load() : nullptr; }

BufferEntry* entry_at(uintptr_t address) {
  if (address >> address_bits) return nullptr;
  const uintptr_t page = address >> page_bits;
  const Piece* piece = pieces[page >> (piece_bits - page_bits)];
  return piece ? find_entry(piece[page % pages_per_piece]) : nullptr;
}

BufferId last_buffer_id() { return newest; }

void* map_shadow(size_t bytes) {
  void* p =
      mmap(nullptr, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    fprintf(stderr, "metal emulator: no memory for %zu bytes of shadow\n", bytes);
    abort();
  }
  return p;
}

void ensure_flags(BufferEntry& entry) {
  std::lock_guard lock(table_mutex);
  if (entry.read_flags) return;
  entry.write_flags = static_cast<uint8_t*>(map_shadow(entry.length));
  entry.read_flags = static_cast<uint8_t*>(map_shadow(entry.length));
}

void ensure_cells(BufferEntry& entry) {
  std::lock_guard lock(table_mutex);
  if (!entry.cells) entry.cells = static_cast<ShadowCell*>(map_shadow(entry.length * sizeof(ShadowCell)));
}

void clear_cells() {
  for (BufferId id = 1; id <= newest; id++) {
    BufferEntry* entry = find_entry(id);
    if (entry->cells) madvise(entry->cells, entry->length * sizeof(ShadowCell), MADV_DONTNEED);
  }
}

uint64_t count_flags(const uint8_t* flags, size_t length, uint8_t bit) {
  uint64_t n = 0;
  for (size_t i = 0; i < length; i++) n += (flags[i] & bit) != 0;
  return n;
}

std::string describe(const BufferEntry& entry) {
  return "'" + entry.label + "' (" + std::to_string(entry.length) + " bytes)";
}

}  // namespace emulator
