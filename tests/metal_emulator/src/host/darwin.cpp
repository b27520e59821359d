#include "darwin.h"

#include <mach/mach.h>
#include <sys/sysctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "kernel/settings.h"
#include "mac_models.h"

namespace emulator::host {
namespace {

/// A line "Name:   123 kB" of /proc/self/status, in bytes; 0 where it is missing.
uint64_t process_status(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1)) * 1024;
  }
  return 0;
}

/// sysctl's protocol: null asks for the size, too small a buffer is ENOMEM.
int answer(const void* value, size_t size, void* out, size_t* out_size) {
  if (!out_size) return 0;
  if (out && *out_size < size) {
    errno = ENOMEM;
    return -1;
  }
  if (out) std::memcpy(out, value, size);
  *out_size = size;
  return 0;
}

}  // namespace

uint64_t physical_memory() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

std::string system_build() {
  // Apple numbers builds by Darwin's major version, a letter for the minor one, and a count.
  const int darwin = settings().os_major >= 26 ? settings().os_major - 1 : settings().os_major + 9;
  return std::to_string(darwin) + static_cast<char>('A' + settings().os_minor % 26) + "100";
}

}  // namespace emulator::host

extern "C" {

task_t mach_task_self(void) { return 1; }

// phys_footprint on a Mac is dirty and compressed memory; resident anonymous and swapped memory is the nearest here.
kern_return_t task_info(task_name_t, task_flavor_t flavor, task_info_t out, mach_msg_type_number_t* count) {
  if (flavor != TASK_VM_INFO || !out || !count) return KERN_INVALID_ARGUMENT;
  task_vm_info_data_t info = {};
  info.page_size = 16384;
  info.virtual_size = emulator::host::process_status("VmSize");
  info.resident_size = emulator::host::process_status("VmRSS");
  info.resident_size_peak = emulator::host::process_status("VmHWM");
  info.internal = emulator::host::process_status("RssAnon");
  info.external = emulator::host::process_status("RssFile");
  info.compressed = emulator::host::process_status("VmSwap");
  info.phys_footprint = info.internal + emulator::host::process_status("RssShmem") + info.compressed;
  *count = std::min(*count, TASK_VM_INFO_COUNT);
  std::memcpy(out, &info, *count * sizeof(natural_t));
  return KERN_SUCCESS;
}

int sysctlbyname(const char* name, void* old_value, size_t* old_size, void* new_value, size_t) {
  if (new_value) {
    errno = EPERM;
    return -1;
  }
  const std::string key = name;
  if (key == "hw.memsize") {
    const uint64_t bytes = emulator::host::physical_memory();
    return emulator::host::answer(&bytes, sizeof bytes, old_value, old_size);
  }
  std::string text;
  if (key == "kern.osversion") {
    text = emulator::host::system_build();
  } else if (key == "kern.osproductversion") {
    text = std::to_string(emulator::settings().os_major) + "." + std::to_string(emulator::settings().os_minor);
  } else if (key == "machdep.cpu.brand_string") {
    text = emulator::host::mac_model().name;
  } else {
    errno = ENOENT;
    return -1;
  }
  return emulator::host::answer(text.c_str(), text.size() + 1, old_value, old_size);
}

}  // extern "C"
