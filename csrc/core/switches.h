#pragma once
// Switches of the core: src/saragossa/runtime_flags.py declares them and fills this struct.
// A switch only chooses a slower path, with the same results up to rounding: the order of sums (chunked_delta, the
// kernels of Metal) or the precision of activations.

#include <cstdint>
#include <string>

namespace saragossa {

/// How the CPU's quantised linears see their activations.
enum class Activations {
  f32,    // as they are: the exact path
  int15,  // two int8 parts per value, one scale per group: as good as float (2e-5)
  int8,   // one int8 part: the fast switch (3e-3)
};

struct Switches {
  bool fused = true;  // false: every fused op runs as its decomposition
  Activations activations = Activations::int15;
  std::string isa = "auto";               // auto, scalar, avx2, avx512, neon
  int threads = 0;                        // 0: performance cores, within the cgroup's quota
  int spin_us = 50;                       // how long a worker spins before it sleeps
  bool cpu_fetch_ahead = true;            // false: a CPU linear does not fetch the first weights of the next one
  bool chunked_delta = true;              // false: the delta rule goes row by row in a prefill, too
  bool run_ahead = true;                  // false: an asynchronous device gets a step only when the one before is done
  bool metal_resident = true;             // false: the Metal device runs each dispatch in a command buffer of its own
  bool metal_matmul = true;               // false: linears of many rows run in the Metal kernel for few
  bool metal_tensor_ops = true;           // false: they run without the matrix units of Metal 4
  bool metal_statistics = true;           // false: a norm behind a linear sums the squares of its row itself
  bool metal_split_matmul = true;         // false: linears of 9 to 32 rows add all products in one threadgroup
  bool metal_sorted_experts = true;       // false: experts of many rows run in the kernels for few
  bool metal_simdgroup_attention = true;  // false: attention of many rows runs in the kernel for few
  int64_t metal_command_macs = 0;         // multiply-adds of a prefill's command buffer; 0: the device's own bound
  std::string kernel_cache;               // folder for the machine code of Metal kernels; empty: none is kept
  bool poison_scratch = false;            // true: scratch is filled with NaN, to find reads of what nobody wrote
};

}  // namespace saragossa
