#pragma once
// What a GPU and its system can do, and from which sizes on a kernel is chosen. Legality and tuning stand apart.

#include <cstdint>
#include <string>

namespace MTL {
class Device;
}

namespace saragossa::metal {

/// What is there: read from the device and the system, lowered by switches.
struct Capabilities {
  std::string gpu;  // "Apple M4 Pro"
  int family = 0;   // 7: A14 and M1, 8: M2, 9: M3 and M4, 10: M5
  int os_major = 0, os_minor = 0;
  std::string os_build;  // of the pipeline cache's key
  int language = 0;      // the newest MSL that the system compiles: 32 is 3.2
  bool simdgroup_matrix = false;
  bool residency_sets = false;  // macOS 15
  bool math_mode = false;       // CompileOptions::setMathMode, which deprecates setFastMathEnabled: macOS 15
  bool tensor_ops = false;      // Metal 4 on a GPU with neural accelerators: macOS 26.2 and family 10
  int64_t working_set = 0;      // bytes that the system recommends as the most to use
  int64_t max_buffer = 0;       // bytes of one buffer
};

Capabilities capabilities_of(MTL::Device* device);

/// The oldest macOS that the device takes: that of the wheels.
constexpr int kOldestMacOs = 14;
bool is_supported(const Capabilities& gpu);

/// What a family of kernels (one file of metal/) needs. Its library is pinned to a language, so that the meaning of a
/// text changes with no system: that of the oldest system, or the lowest that has all that the family uses.
struct Needs {
  int language;
  bool simdgroup_matrix;
  bool tensor_ops;
};
Needs needs_of(const char* family);

/// Whether this system and GPU have what the family needs; no other family is ever compiled.
bool takes(const Capabilities& gpu, const char* family);

/// What is worth it. Figures are leads from public measurements; docs/on-a-mac.md lists what a Mac must confirm.
struct Tuning {
  int64_t matvec_rows = 8;                  // up to as many rows the matvec kernels are taken, above it the matmul ones
  int64_t split_rows = 32;                  // up to as many rows a matmul may split its inputs
  int64_t split_groups = 128;               // threadgroups that its splits aim at, over the outputs of a weight
  int64_t split_depth = 256;                // inputs of a split, at least
  int64_t norm_split_threads = 256;         // of a threadgroup of a norm whose sums of squares are ready
  int64_t attention_split = 256;            // keys of one split of decode attention
  int64_t attention_splits = 32;            // threadgroups that share a row's splits, at most
  int64_t attention_rows = 8;               // up to as many rows a sequence the decode kernel is taken
  int64_t delta_rows = 64;                  // from as many rows a run on the delta rule goes by chunks: two of them
  int64_t prefill_macs = int64_t{1} << 35;  // multiply-adds of one command buffer: some 30 ms of an M1
};

Tuning tuning_for(const Capabilities& gpu);

}  // namespace saragossa::metal
