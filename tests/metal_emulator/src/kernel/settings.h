#pragma once
// Settings, read once from the environment: SARAGOSSA_METAL_EMULATOR_<NAME IN UPPER CASE>.
// emulator_set() changes them while the process runs; no dispatch may run meanwhile.

#include <cstdint>
#include <string>

namespace emulator {

/// The order in which threadgroups, simdgroups and lanes get their turn.
enum class Order { in_order, reversed, random };

struct Settings {
  // --- execution
  Order order = Order::in_order;
  uint64_t seed = 1;
  int workers = 0;       // OS threads that run threadgroups; 0: one a core. A checked dispatch uses one.
  bool reorder = false;  // shuffle dispatches that no barrier separates
  bool execute = true;   // false: dispatches are checked for their bindings and counted, kernels do not run
  bool ftz = true;       // float32 denormals are zero, as on the GPU

  // --- checks and counts
  bool check = false;  // every access of a kernel is checked (bounds, races, hazards, uninitialised memory)
  bool trace = false;  // bytes are counted, without the checks
  bool trap = false;   // abort at the first report
  bool print = false;  // reports go to stderr, too

  // --- what Metal leaves open
  int perturb_fast = 0;  // results of fast:: functions are off by up to so many ulp (by seed); reductions reassociate
  bool shuffle_cooperative = false;  // another layout of cooperative tensors and simdgroup matrices (by seed)

  // --- the device that is played
  int max_threads_per_threadgroup = 1024;
  int threadgroup_memory = 32768;
  int reported_simd_width = 32;  // threadExecutionWidth; kernels run in simdgroups of 32 whatever it is
  int gpu_family = 9;            // Apple family number: virtual machine 5, M1 7, M2 8, M3 and M4 9, M5 10
  int os_major = 26;             // OS_VERSION=26.2
  int os_minor = 2;
  std::string device;        // "Apple M3 Max": its family and architecture instead of gpu_family's
  int working_set_mib = 0;   // recommendedMaxWorkingSetSize; 0: three quarters of this machine's memory
  int max_buffer_mib = 0;    // maxBufferLength; 0: half of this machine's memory
  int lazy_ms = 0;           // committed work waits for somebody to wait for it, at most so long
  bool late_status = false;  // the end of a command buffer shows only to its handlers and to who waits for it

  // --- faults on request (the host side raises them); -1: never, 0: at once, n: after n successes
  int fail_allocation = -1;
  int fail_command_buffer = -1;
  int fail_compile = -1;
  int fail_pipeline = -1;
  std::string fail_compile_of;   // a library whose source, or a pipeline whose kernel's name, holds this text
  std::string miscompile;        // "text=>other text": what a library's source becomes before it is compiled
  int command_buffer_error = 8;  // MTLCommandBufferError of fail_command_buffer: 2 timeout, 8 out of memory

  bool instrumented() const { return check || trace; }
};

/// The one instance.
Settings& settings();

/// By name in lower case ("order"); false where name or value is unknown.
bool set(const std::string& name, const std::string& value);

/// For the fail_* settings: true when this attempt is the one that fails; counts down.
bool fails_now(int& countdown);

}  // namespace emulator
