#pragma once
// Kernels: sources that the build embedded, compiled at run time, specialised by function constants, cached.

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>

#include "metal/metal_cpp.h"
#include "metal/pipeline_archive.h"
#include "metal/policy.h"

namespace saragossa::metal {

/// One .metal file with its headers inlined, as tools/embed_metal.py made it.
struct KernelSource {
  const char* family;  // "matvec"
  const char* text;
  const char* sha256;
};
std::span<const KernelSource> kernel_sources();

/// The library of a family; none, and the compiler's words, where it does not compile.
NS::SharedPtr<MTL::Library> compile(MTL::Device* device, const Capabilities& gpu, const KernelSource& source,
                                    NS::Error** error);

/// A kernel function of a family. Defined once, beside its launch; known by its address.
struct Kernel {
  const char* family;
  const char* function;
};

/// Values of the function constants 0, 1, 2, ..., all of them `uint` in MSL.
struct Constants {
  static constexpr size_t kMax = 8;
  std::array<uint32_t, kMax> values{};
  size_t count = 0;
  bool operator==(const Constants&) const = default;
};

/// Compiles what is asked for and keeps it. Safe from several threads.
class Kernels {
 public:
  /// cache_folder: for machine code between runs; empty: none.
  Kernels(MTL::Device* device, const Capabilities& gpu, const std::string& cache_folder);
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  /// Error(device) with the compiler's words when a kernel cannot be built, or when its simdgroups are not of 32
  /// threads.
  MTL::ComputePipelineState* pipeline(const Kernel& kernel, const Constants& constants);
  /// Writes the archive if it has grown and nothing was built for a second; cheap to ask.
  void save_when_quiet();

 private:
  struct Key {
    const Kernel* kernel;
    Constants constants;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  MTL::Library* library(const char* family);
  NS::SharedPtr<MTL::ComputePipelineState> build(const Kernel& kernel, const Constants& constants);

  MTL::Device* device_;
  Capabilities gpu_;
  std::mutex mutex_;
  std::map<std::string, NS::SharedPtr<MTL::Library>> libraries_;
  std::unordered_map<Key, NS::SharedPtr<MTL::ComputePipelineState>, Hash> pipelines_;
  PipelineArchive archive_;
  std::chrono::steady_clock::time_point built_{};  // when the last pipeline was
  bool unsaved_ = false;
};

}  // namespace saragossa::metal
