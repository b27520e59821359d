#include "metal/policy.h"

#include "metal/metal_cpp.h"

namespace saragossa::metal {
namespace {

int family_of(MTL::Device* device) {
  int family = 0;
  for (int n = 7; n <= 10; ++n)
    if (device->supportsFamily(static_cast<MTL::GPUFamily>(static_cast<int>(MTL::GPUFamilyApple1) + n - 1))) family = n;
  return family;
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
  out.simdgroup_matrix = out.family >= 7;
  out.residency_sets = out.os_major >= 15;
  out.tensor_ops = out.family >= 10 && (out.os_major > 26 || (out.os_major == 26 && out.os_minor >= 2));
  out.working_set = static_cast<int64_t>(device->recommendedMaxWorkingSetSize());
  out.max_buffer = static_cast<int64_t>(device->maxBufferLength());
  return out;
}

Tuning tuning_for(const Capabilities&) { return {}; }

}  // namespace saragossa::metal
