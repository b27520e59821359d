#include <unistd.h>

#include <chrono>
#include <thread>

#include "classes.h"
#include "darwin.h"
#include "foundation.h"
#include "kernel/settings.h"

namespace emulator::host {
namespace {

struct NSProcessInfo final : Instance<NSProcessInfo> {
  static constexpr const char* kName = "NSProcessInfo";

  OperatingSystemVersion operatingSystemVersion() const { return {settings().os_major, settings().os_minor, 0}; }
  bool isOperatingSystemAtLeastVersion(OperatingSystemVersion version) const {
    const Integer major = settings().os_major, minor = settings().os_minor;
    return major != version.major   ? major > version.major
           : minor != version.minor ? minor > version.minor
                                    : version.patch <= 0;
  }
  NSString* operatingSystemVersionString() const {
    return make_string("Version " + std::to_string(settings().os_major) + "." + std::to_string(settings().os_minor) +
                       " (Build " + system_build() + ")");
  }
  uint64_t physicalMemory() const { return physical_memory(); }
  UInteger processorCount() const { return std::thread::hardware_concurrency(); }
  Integer thermalState() const { return 0; }  // nominal
  bool isLowPowerModeEnabled() const { return false; }
  int processIdentifier() const { return getpid(); }
  double systemUptime() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

NSProcessInfo* process_info() {
  static auto* only = immortal(new NSProcessInfo);
  return only;
}

}  // namespace

void install_process_info() {
  define<NSProcessInfo>()
      .class_method<&process_info>("processInfo")
      .method<&NSProcessInfo::operatingSystemVersion>("operatingSystemVersion")
      .method<&NSProcessInfo::isOperatingSystemAtLeastVersion>("isOperatingSystemAtLeastVersion:")
      .method<&NSProcessInfo::operatingSystemVersionString>("operatingSystemVersionString")
      .method<&NSProcessInfo::physicalMemory>("physicalMemory")
      .method<&NSProcessInfo::processorCount>("processorCount")
      .method<&NSProcessInfo::processorCount>("activeProcessorCount")
      .method<&NSProcessInfo::thermalState>("thermalState")
      .method<&NSProcessInfo::isLowPowerModeEnabled>("isLowPowerModeEnabled")
      .method<&NSProcessInfo::processIdentifier>("processIdentifier")
      .method<&NSProcessInfo::systemUptime>("systemUptime");
}

}  // namespace emulator::host
