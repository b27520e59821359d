#include "metal/policy.h"

#include <cstring>

#include "metal/metal_cpp.h"

namespace saragossa::metal {
namespace {

int family_of(MTL::Device* device) {
  int family = 0;
  for (int n = 7; n <= 10; ++n)
    if (device->supportsFamily(static_cast<MTL::GPUFamily>(static_cast<int>(MTL::GPUFamilyApple1) + n - 1))) family = n;
  return family;
}

/// By Apple's tables: macOS 14 brought 3.1, 15 brought 3.2, 26 brought 4.0. 0: of a system that is refused.
int language_of(int os_major) {
  if (os_major >= 26) return 40;
  return os_major >= 15 ? 32 : os_major >= kOldestMacOs ? 31 : 0;
}

}  // namespace

Capabilities capabilities_of(MTL::Device* device) {
  const Pool pool;
  NS::ProcessInfo* process = NS::ProcessInfo::processInfo();
  const NS::OperatingSystemVersion os = process->operatingSystemVersion();
  Capabilities out;
  out.gpu = device->name()->utf8String();
  out.family = family_of(device);
  out.os_major = static_cast<int>(os.majorVersion);
  out.os_minor = static_cast<int>(os.minorVersion);
  // macOS 26 calls itself 16 before programs that were linked for an older system, such as most Pythons.
  if (out.os_major >= 16 && out.os_major < 26) out.os_major += 10;
  out.os_build = process->operatingSystemVersionString()->utf8String();
  out.language = language_of(out.os_major);
  out.simdgroup_matrix = out.family >= 7;
  out.residency_sets = out.os_major >= 15;
  out.math_mode = out.os_major >= 15;
  out.tensor_ops = out.family >= 10 && (out.os_major > 26 || (out.os_major == 26 && out.os_minor >= 2));
  out.working_set = static_cast<int64_t>(device->recommendedMaxWorkingSetSize());
  out.max_buffer = static_cast<int64_t>(device->maxBufferLength());
  return out;
}

bool is_supported(const Capabilities& gpu) { return gpu.os_major >= kOldestMacOs; }

Needs needs_of(const char* family) {
  const auto is = [family](const char* name) { return std::strcmp(family, name) == 0; };
  // 4.0: tensors, matmul2d and the C++17 of their headers. Its neural accelerators are a matter of the GPU.
  if (is("matmul_tensor")) return {40, false, true};
  // 3.1, that of the oldest macOS: a lower one would win no machine, and a word that is newer than we believe would
  // fail on every Mac.
  return {31, is("matmul") || is("moe_sorted") || is("attention_prefill") || is("delta_chunks"), false};
}

bool takes(const Capabilities& gpu, const char* family) {
  const Needs needs = needs_of(family);
  return gpu.language >= needs.language && (gpu.simdgroup_matrix || !needs.simdgroup_matrix) &&
         (gpu.tensor_ops || !needs.tensor_ops);
}

Tuning tuning_for(const Capabilities&) { return {}; }

}  // namespace saragossa::metal
