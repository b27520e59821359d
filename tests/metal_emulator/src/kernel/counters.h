#pragma once
// What the project can measure without a GPU. The host side counts its calls, the kernel side what ran.
//
// Bytes need Settings::trace or check. "Requested" adds up every load and store of device memory; "unique"
// counts a byte once a dispatch. Reads of setBytes data count as requested by no buffer.

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace emulator {

struct Traffic {
  uint64_t requested_read = 0;
  uint64_t requested_written = 0;
  uint64_t unique_read = 0;
  uint64_t unique_written = 0;
  Traffic& operator+=(const Traffic& o);
};

struct BufferTraffic {
  uint32_t buffer = 0;  // id of memory.h
  std::string label;
  Traffic traffic;
};

/// One dispatch; kept only while bytes are counted.
struct DispatchRecord {
  uint64_t sequence = 0;
  std::string kernel;
  std::string label;
  uint64_t threads = 0;
  Traffic traffic;
  std::vector<BufferTraffic> buffers;
};

/// Calls. The host side increments the first group, the kernel side the second.
struct Calls {
  std::atomic<uint64_t> command_buffers{0};  // committed
  std::atomic<uint64_t> encoders{0};
  std::atomic<uint64_t> barriers{0};
  std::atomic<uint64_t> host_waits{0};       // waitUntilCompleted, waits for shared events
  std::atomic<uint64_t> readbacks{0};        // blits to the host and the like
  std::atomic<uint64_t> inline_bytes{0};     // setBytes
  std::atomic<uint64_t> new_buffers{0};      // that the device has made
  std::atomic<uint64_t> newest_language{0};  // of the libraries that were compiled, as __METAL_VERSION__
  std::atomic<uint64_t> encode_ns{0};  // of the encoding thread's CPU, from a command buffer's creation to its commit
  std::atomic<uint64_t> method_ns{0};  // of these, inside the emulator's own methods

  std::atomic<uint64_t> dispatches{0};
  std::atomic<uint64_t> threads{0};
  std::atomic<uint64_t> simd_operations{0};
  std::atomic<uint64_t> threadgroup_barriers{0};
};
Calls& calls();

/// Appends a record (the newest 100 000 stay) and adds its traffic to the total.
void record_dispatch(DispatchRecord record);

/// {"command_buffers": .., .., "requested_read": .., "touched_read": .. (a byte once since the reset, whatever
/// dispatches read it), "touched_written": .., "dispatch_list": [{"kernel", "label", "threads", "requested_read", ..,
/// "buffers": [{"buffer", "label", "requested_read", ..}]}], "buffers": [.. as above, summed, and "touched_read" ..]}
std::string counters_json();
void reset_counters();

}  // namespace emulator
