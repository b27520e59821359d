#pragma once
// What the running dispatch may touch, and what it touched: bytes by buffer, checks of every access.
// One a worker; a checked dispatch has one worker, so shadow cells need no lock.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "buffer_table.h"
#include "counters.h"
#include "execute.h"

namespace emulator {

class Worker;

constexpr size_t arena_bytes = 65536;  // threadgroup memory, with room to find that a kernel asks for too much
constexpr size_t red_zone = 16;        // between threadgroup variables in checked mode

/// A buffer that the dispatch may touch.
struct Range {
  uintptr_t base = 0;
  size_t length = 0;
  BufferEntry* entry = nullptr;  // null: setBytes, read only
  uint64_t requested_read = 0, requested_written = 0;
  size_t low = SIZE_MAX, high = 0;  // touched part
};

/// What all workers of a dispatch touched.
class Tally {
 public:
  void add(const Range& range);
  /// Counts this dispatch's flags, clears them, and writes all figures into the record.
  void finish(DispatchRecord& record);

 private:
  std::map<BufferEntry*, Range> ranges_;
  uint64_t inline_read_ = 0;
};

class Access {
 public:
  void begin_dispatch(const Dispatch& dispatch, Worker& worker);
  void begin_group();
  void add_to(Tally& tally) const;

  /// One access of `bytes` bytes by the kernel's code at `code`.
  void touch(uintptr_t address, size_t bytes, bool write, bool atomic, uintptr_t code);
  /// The same, of code that relies on the address being a multiple of `bytes`.
  void touch_aligned(uintptr_t address, size_t bytes, bool write, uintptr_t code);

  // Threadgroup memory: variables and [[threadgroup(n)]] bindings.
  void* threadgroup_buffers[max_bindings] = {};
  void* place_threadgroup_memory(size_t size, size_t alignment, const char* name);
  void* find_variable(const void* declaration) const;
  void add_variable(const void* declaration, void* address) { variables_.push_back({declaration, address}); }
  /// Bytes of the kernel's own variables, as far as they were reached.
  size_t static_bytes() const { return threadgroup_bytes_ - dynamic_bytes_; }

 private:
  struct Variable {
    const void* declaration;
    void* address;
  };
  struct Piece {
    size_t begin, end;  // in the arena
    const char* name;
  };

  void add_range(void* address, size_t length, BufferEntry* entry);
  Range* find_range(uintptr_t address);
  Range* find_resident(uintptr_t address);
  bool is_private(uintptr_t address);
  void count(Range& range, size_t offset, size_t bytes, bool write);
  void check_device(Range& range, size_t offset, size_t bytes, bool write, bool atomic, uintptr_t code);
  void check_threadgroup(size_t offset, size_t bytes, bool write, bool atomic, uintptr_t code);
  bool update(ShadowCell& cell, uint64_t stamp, bool write, const BufferEntry* entry, uintptr_t code);
  void outside(uintptr_t address, size_t bytes, bool write, uintptr_t code);
  uint64_t stamp(uint32_t epoch, uint32_t simdgroup_epoch, bool atomic) const;
  void found(const char* kind, uintptr_t code, const std::string& what) const;
  void clear_arena(size_t begin, size_t end);

  Worker* worker_ = nullptr;
  const Dispatch* dispatch_ = nullptr;
  bool check_ = false;
  uint32_t number_ = 0;  // of the dispatch, in stamps
  std::vector<Range> ranges_;
  size_t last_ = 0;  // index of the range found last
  uintptr_t library_begin_ = 0, library_end_ = 0;

  std::vector<Variable> variables_;
  std::vector<Piece> pieces_;
  size_t arena_used_ = 0, threadgroup_bytes_ = 0, dynamic_bytes_ = 0;
  std::vector<ShadowCell> arena_cells_;
  alignas(64) char arena_[arena_bytes];
};

// --- shadow cells ----------------------------------------------------------------------------------------------------
// A stamp tells who touched a byte: dispatch 16 bits, group 18, thread 10, barriers of the threadgroup 12 and of the
// simdgroup 6, atomic, shared. 0: nobody.

struct Stamp {
  uint64_t bits;
  uint32_t dispatch() const { return static_cast<uint32_t>(bits >> 48); }
  uint32_t group() const { return static_cast<uint32_t>(bits >> 30 & 0x3ffff); }
  uint32_t thread() const { return static_cast<uint32_t>(bits >> 20 & 0x3ff); }
  uint32_t simdgroup() const { return thread() / 32; }
  uint32_t epoch() const { return static_cast<uint32_t>(bits >> 8 & 0xfff); }
  uint32_t simdgroup_epoch() const { return static_cast<uint32_t>(bits >> 2 & 0x3f); }
  bool atomic() const { return bits & 2; }
  bool shared() const { return bits & 1; }  // a read: by more than one thread that nothing orders
};
constexpr uint64_t shared_bit = 1;
constexpr uint64_t make_stamp(uint64_t dispatch, uint64_t group, uint64_t thread, uint64_t epoch,
                              uint64_t simdgroup_epoch, bool atomic) {
  return dispatch << 48 | (group & 0x3ffff) << 30 | (thread & 0x3ff) << 20 | (epoch & 0xfff) << 8 |
         (simdgroup_epoch & 0x3f) << 2 | (atomic ? 2 : 0);
}

/// Two accesses of one dispatch that nothing orders, by different threads, not both atomic.
inline bool races(Stamp old, Stamp now) {
  if (old.atomic() && now.atomic()) return false;
  if (old.group() != now.group()) return true;
  if (old.epoch() != now.epoch()) return false;  // a barrier lies between
  if (old.simdgroup() == now.simdgroup() && old.simdgroup_epoch() != now.simdgroup_epoch()) return false;
  return old.thread() != now.thread() || old.shared();
}

/// Numbers dispatches for stamps and remembers them for messages. Returns 1..65535; clears all cells when it wraps.
uint32_t number_dispatch(const Dispatch& dispatch);

/// A dispatch of an earlier stamp.
struct PastDispatch {
  std::string name;
  uint32_t barrier_group = 0, untracked_group = 0, encoder = 0;
};
const PastDispatch& past_dispatch(uint32_t number);

}  // namespace emulator
