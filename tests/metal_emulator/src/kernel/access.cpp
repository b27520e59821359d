#include "access.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "report.h"
#include "settings.h"
#include "shared_object.h"
#include "worker.h"

namespace emulator {

// --- a dispatch
// --------------------------------------------------------------------------------------------------------

void Access::begin_dispatch(const Dispatch& dispatch, Worker& worker) {
  worker_ = &worker;
  dispatch_ = &dispatch;
  check_ = settings().check;
  ranges_.clear();
  last_ = 0;
  library_begin_ = library_end_ = 0;
  variables_.clear();
  pieces_.clear();
  arena_used_ = threadgroup_bytes_ = 0;
  if (check_) {
    number_ = number_dispatch(dispatch);
    arena_cells_.resize(arena_bytes);
  }
  if (settings().instrumented())
    for (const Binding& b : dispatch.buffers) {
      BufferEntry* entry = find_entry(b.buffer);
      if (entry)
        add_range(entry->base, entry->length, entry);
      else if (b.address)
        add_range(b.address, b.length, nullptr);
    }
  for (int i = 0; i < max_bindings; i++) {
    const uint32_t length = dispatch.threadgroup_lengths[i];
    threadgroup_buffers[i] = length ? place_threadgroup_memory(length, 16, "[[threadgroup(n)]]") : nullptr;
  }
  dynamic_bytes_ = threadgroup_bytes_;
}

void Access::add_range(void* address, size_t length, BufferEntry* entry) {
  const auto base = reinterpret_cast<uintptr_t>(address);
  for (const Range& r : ranges_)
    if (r.base == base && r.entry == entry) return;  // bound twice
  if (entry) ensure_flags(*entry);
  if (entry && check_) ensure_cells(*entry);
  Range range;
  range.base = base;
  range.length = length;
  range.entry = entry;
  ranges_.push_back(range);
}

void Access::add_to(Tally& tally) const {
  for (const Range& range : ranges_) tally.add(range);
}

void Tally::add(const Range& range) {
  if (!range.entry) {
    inline_read_ += range.requested_read;
    return;
  }
  Range& sum = ranges_[range.entry];
  sum.requested_read += range.requested_read;
  sum.requested_written += range.requested_written;
  sum.low = std::min(sum.low, range.low);
  sum.high = std::max(sum.high, range.high);
}

void Tally::finish(DispatchRecord& record) {
  record.traffic.requested_read += inline_read_;
  for (auto& [entry, range] : ranges_) {
    if (range.high == 0) continue;
    const size_t length = range.high - range.low;
    uint8_t *read = entry->read_flags + range.low, *written = entry->write_flags + range.low;
    Traffic t{range.requested_read, range.requested_written, count_flags(read, length, touched_now),
              count_flags(written, length, touched_now)};
    for (size_t i = 0; i < length; i++) read[i] &= touched_ever, written[i] &= touched_ever;
    entry->flagged = true;
    record.buffers.push_back({entry->id, entry->label, t});
    record.traffic += t;
  }
}

// --- one access
// --------------------------------------------------------------------------------------------------------

Range* Access::find_range(uintptr_t address) {
  if (last_ < ranges_.size() && address - ranges_[last_].base < ranges_[last_].length) return &ranges_[last_];
  for (size_t i = 0; i < ranges_.size(); i++)
    if (address - ranges_[i].base < ranges_[i].length) {
      last_ = i;
      return &ranges_[i];
    }
  return nullptr;
}

/// A buffer that was made resident and is reached through a pointer in another.
Range* Access::find_resident(uintptr_t address) {
  BufferEntry* entry = entry_at(address);
  if (!entry || !entry->live || address - reinterpret_cast<uintptr_t>(entry->base) >= entry->length) return nullptr;
  const auto& resident = dispatch_->resident;
  if (check_ && std::find(resident.begin(), resident.end(), entry->id) == resident.end()) return nullptr;
  add_range(entry->base, entry->length, entry);
  return &ranges_.back();
}

/// Positions of threads (entry.h reads them), constants of the library.
bool Access::is_private(uintptr_t address) {
  if (address - reinterpret_cast<uintptr_t>(worker_) < sizeof(Worker)) return true;
  if (address - library_begin_ < library_end_ - library_begin_) return true;
  if (!in_kernel_library(address)) return false;
  library_begin_ = address & ~uintptr_t{4095};
  library_end_ = library_begin_ + 4096;
  return true;
}

void Access::touch(uintptr_t address, size_t bytes, bool write, bool atomic, uintptr_t code) {
  if (worker_->stacks().contains(address)) return;
  const size_t in_arena = address - reinterpret_cast<uintptr_t>(arena_);
  if (in_arena < arena_bytes) {
    if (check_) check_threadgroup(in_arena, bytes, write, atomic, code);
    return;
  }
  Range* range = find_range(address);
  if (!range) {
    if (is_private(address)) return;
    range = find_resident(address);
    if (!range) return outside(address, bytes, write, code);
  }
  const size_t offset = address - range->base;
  if (offset + bytes > range->length) return outside(address, bytes, write, code);
  count(*range, offset, bytes, write);
  if (check_) check_device(*range, offset, bytes, write, atomic, code);
}

void Access::touch_aligned(uintptr_t address, size_t bytes, bool write, uintptr_t code) {
  if (check_ && address % bytes) {
    found("misaligned", code,
          std::string(write ? "write" : "read") + " of " + std::to_string(bytes) +
              " bytes at an address that is no multiple of it; use a packed type");
    worker_->abandon_lane();
  }
  touch(address, bytes, write, false, code);
}

void Access::count(Range& range, size_t offset, size_t bytes, bool write) {
  (write ? range.requested_written : range.requested_read) += bytes;
  if (!range.entry) return;
  range.low = std::min(range.low, offset);
  range.high = std::max(range.high, offset + bytes);
  uint8_t* flags = (write ? range.entry->write_flags : range.entry->read_flags) + offset;
  // Plain stores: workers that touch the same byte store the same.
  for (size_t i = 0; i < bytes; i++) flags[i] = touched_now | touched_ever;
}

/// No range of the dispatch holds this access. The thread ends here: the access would hit whatever lies there.
void Access::outside(uintptr_t address, size_t bytes, bool write, uintptr_t code) {
  if (!check_) return;
  const BufferEntry* entry = entry_at(address);
  const std::string what = std::string(write ? "write" : "read") + " of " + std::to_string(bytes) + " bytes ";
  const size_t offset = entry ? address - reinterpret_cast<uintptr_t>(entry->base) : 0;
  const bool inside = entry && offset + bytes <= entry->length;
  if (entry && !entry->live) {
    found("freed-buffer", code, what + "of " + describe(*entry) + ", which was freed");
  } else if (inside) {
    found("unbound-buffer", code,
          what + "of " + describe(*entry) + ", which is neither bound to the dispatch nor made resident");
  } else {
    // Name the nearest binding in front: an index that runs over is the usual case.
    const Range* nearest = nullptr;
    for (const Range& r : ranges_)
      if (r.base <= address && (!nearest || r.base > nearest->base)) nearest = &r;
    std::string where = "outside of every buffer";
    if (nearest && address - nearest->base < nearest->length + (size_t{1} << 24))
      where =
          "at offset " + std::to_string(address - nearest->base) + " of " +
          (nearest->entry ? describe(*nearest->entry) : "bytes set inline (" + std::to_string(nearest->length) + ")");
    found("out-of-bounds", code, what + where);
  }
  worker_->abandon_lane();
}

void Access::found(const char* kind, uintptr_t code, const std::string& what) const {
  report(kind, worker_->context() + ", " + source_line(code) + ": " + what);
}

// --- checks of order
// ---------------------------------------------------------------------------------------------------

uint64_t Access::stamp(uint32_t epoch, uint32_t simdgroup_epoch, bool atomic) const {
  return make_stamp(number_, worker_->group_number(), worker_->current->thread.index, epoch, simdgroup_epoch, atomic);
}

void Access::check_device(Range& range, size_t offset, size_t bytes, bool write, bool atomic, uintptr_t code) {
  if (!range.entry) {
    if (write) found("binding", code, "write to bytes set inline (setBytes), which are read only");
    return;
  }
  const Simdgroup& simdgroup = worker_->simdgroup_of(*worker_->current);
  const uint64_t now = stamp(worker_->device_epoch(), simdgroup.device_epoch, atomic);
  ShadowCell* cells = range.entry->cells + offset;
  bool reported = false;
  for (size_t i = 0; i < bytes; i++)
    reported = update(cells[i], now, write, reported ? nullptr : range.entry, code) || reported;
}

/// Compares an access with the last ones of this byte and takes their place. True where a finding was made.
/// entry: null where this access has one already.
bool Access::update(ShadowCell& cell, uint64_t now, bool write, const BufferEntry* entry, uintptr_t code) {
  const Stamp mine{now};
  auto conflict = [&](uint64_t bits, const char* what) {
    if (!bits || !entry) return false;
    const Stamp old{bits};
    const std::string access = write ? "write" : "read";
    if (old.dispatch() == mine.dispatch()) {
      if (!races(old, mine)) return false;
      const bool same_group = old.group() == mine.group();
      found("race", code,
            access + " of " + describe(*entry) + " races with a " + what + " by another thread" +
                (same_group ? " of the threadgroup; a barrier with mem_device is missing" : " of another threadgroup"));
      return true;
    }
    const PastDispatch& past = past_dispatch(old.dispatch());
    const bool by_barriers = entry->hazard_tracked || past.encoder == dispatch_->encoder;
    const bool unordered = by_barriers ? past.barrier_group == dispatch_->barrier_group
                                       : past.untracked_group == dispatch_->untracked_group;
    if (unordered)
      found("hazard", code,
            access + " of " + describe(*entry) + " overlaps a " + what + " by " + past.name +
                "; no barrier lies between the dispatches");
    return unordered;
  };
  const bool hit = conflict(cell.write, "write") || (write && conflict(cell.read, "read"));
  if (write) {
    cell.write = now;
    return hit;
  }
  // Remember that several threads read, so that a later write by the last of them is seen, too.
  const Stamp old{cell.read};
  const bool shared = cell.read && old.dispatch() == mine.dispatch() && races(old, mine);
  cell.read = now | (shared ? shared_bit : 0);
  return hit;
}

void Access::check_threadgroup(size_t offset, size_t bytes, bool write, bool atomic, uintptr_t code) {
  const auto piece = std::find_if(pieces_.begin(), pieces_.end(),
                                  [&](const Piece& p) { return offset >= p.begin && offset + bytes <= p.end; });
  if (piece == pieces_.end()) {
    found("out-of-bounds", code,
          std::string(write ? "write" : "read") + " of " + std::to_string(bytes) +
              " bytes of threadgroup memory outside of every variable");
    worker_->abandon_lane();
  }
  const Simdgroup& simdgroup = worker_->simdgroup_of(*worker_->current);
  const Stamp mine{stamp(worker_->threadgroup_epoch(), simdgroup.threadgroup_epoch, atomic)};
  const char* finding = nullptr;
  bool uninitialised = false;
  for (size_t i = 0; i < bytes; i++) {
    ShadowCell& cell = arena_cells_[offset + i];
    uninitialised |= !write && !cell.write;
    if (cell.write && races(Stamp{cell.write}, mine))
      finding = "write";
    else if (write && cell.read && races(Stamp{cell.read}, mine))
      finding = "read";
    if (write)
      cell.write = mine.bits;
    else
      cell.read = mine.bits | (cell.read && races(Stamp{cell.read}, mine) ? shared_bit : 0);
  }
  if (!uninitialised && !finding) return;
  const std::string name = std::string("threadgroup variable '") + piece->name + "'";
  if (uninitialised) found("uninitialised", code, "read of " + name + " before anything was written there");
  if (finding)
    found("race", code,
          std::string(write ? "write" : "read") + " of " + name + " races with a " + finding +
              " by another thread; a barrier with mem_threadgroup is missing");
}

// --- threadgroup memory
// ------------------------------------------------------------------------------------------------

/// Bytes that are NaN as float and half, so that what is read too early shows in unchecked runs, too.
void Access::clear_arena(size_t begin, size_t end) {
  memset(arena_ + begin, 0xff, end - begin);
  if (check_)
    std::fill(arena_cells_.begin() + static_cast<long>(begin), arena_cells_.begin() + static_cast<long>(end),
              ShadowCell{});
}

void Access::begin_group() { clear_arena(0, arena_used_); }

void* Access::place_threadgroup_memory(size_t size, size_t alignment, const char* name) {
  size_t begin = arena_used_ + (check_ && !pieces_.empty() ? red_zone : 0);
  begin = (begin + alignment - 1) / alignment * alignment;
  if (begin + size > arena_bytes) {
    fprintf(stderr, "metal emulator: %s: threadgroup memory of more than %zu bytes\n", worker_->context().c_str(),
            arena_bytes);
    abort();
  }
  clear_arena(arena_used_, begin + size);
  pieces_.push_back({begin, begin + size, name});
  arena_used_ = begin + size;
  threadgroup_bytes_ += (size + 15) / 16 * 16;
  if (threadgroup_bytes_ > static_cast<size_t>(settings().threadgroup_memory))
    report("limit", worker_->context() + ": " + std::to_string(threadgroup_bytes_) +
                        " bytes of threadgroup memory, the device has " +
                        std::to_string(settings().threadgroup_memory));
  return arena_ + begin;
}

void* Access::find_variable(const void* declaration) const {
  for (const Variable& v : variables_)
    if (v.declaration == declaration) return v.address;
  return nullptr;
}

// --- dispatches in stamps
// ----------------------------------------------------------------------------------------------

namespace {
std::vector<PastDispatch> past(65536);
uint32_t newest = 0;
}  // namespace

uint32_t number_dispatch(const Dispatch& dispatch) {
  if (++newest == past.size()) {
    clear_cells();
    newest = 1;
  }
  std::string name = "kernel '" + dispatch.kernel->name + "'";
  if (!dispatch.label.empty()) name += " (" + dispatch.label + ")";
  past[newest] = {name, dispatch.barrier_group, dispatch.untracked_group, dispatch.encoder};
  return newest;
}

const PastDispatch& past_dispatch(uint32_t number) { return past[number]; }

}  // namespace emulator
