#include "shared_object.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <sstream>
#include <vector>

#include "cache.h"
#include "process.h"

namespace emulator {
namespace {

/// Where each library lies, its file, and how many objects share it.
struct Range {
  uintptr_t end;
  std::string path;
  int objects = 0;
  std::map<uintptr_t, std::string> lines;  // found so far, by address
};
// Never destroyed: the last kernels may go at the end of the process.
std::mutex& ranges_mutex = *new std::mutex;
std::map<uintptr_t, Range>& ranges = *new std::map<uintptr_t, Range>;

thread_local const ConstantValues* loading = nullptr;  // read by the library's initialisers

struct Extent {
  uintptr_t base, begin, end;
};
int find_extent(dl_phdr_info* info, size_t, void* data) {
  auto& extent = *static_cast<Extent*>(data);
  if (info->dlpi_addr != extent.base) return 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) & segment = info->dlpi_phdr[i];
    if (segment.p_type == PT_LOAD)
      extent.end = std::max<uintptr_t>(extent.end, extent.base + segment.p_vaddr + segment.p_memsz);
  }
  return 1;
}

/// Kernels take the runtime's functions from the process, not from a named library: so one cache serves every build of
/// it. A library that was loaded privately (by Python) must be made visible for that.
void show_runtime() {
  Dl_info own;
  dladdr(reinterpret_cast<void*>(&show_runtime), &own);
  dlopen(own.dli_fname, RTLD_NOLOAD | RTLD_LAZY | RTLD_GLOBAL);
}

}  // namespace

std::shared_ptr<LoadedObject> LoadedObject::load(const std::string& path, const ConstantValues& constants,
                                                 std::string& error) {
  static std::once_flag shown;
  std::call_once(shown, show_runtime);
  // dlopen gives the same library for the same file: a copy makes its variables its own. It may go once it is mapped.
  TemporaryFolder folder;
  const std::filesystem::path copy = folder.path / "library.so";
  std::error_code copy_error;
  if (!constants.empty()) std::filesystem::copy_file(path, copy, copy_error);
  loading = &constants;
  void* handle = dlopen(constants.empty() ? path.c_str() : copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  loading = nullptr;
  if (!handle) {
    error = dlerror();
    return nullptr;
  }
  std::shared_ptr<LoadedObject> object(new LoadedObject(handle));
  object->library_ = static_cast<const EmulatorLibrary*>(dlsym(handle, "emulator_library"));
  if (!object->library_) {
    error = path + " is no kernel library";
    return nullptr;
  }
  link_map* map = nullptr;
  dlinfo(handle, RTLD_DI_LINKMAP, &map);
  Extent extent{map->l_addr, map->l_addr, 0};
  dl_iterate_phdr(find_extent, &extent);
  std::lock_guard lock(ranges_mutex);
  Range& range = ranges[extent.begin];
  range.end = extent.end;
  range.path = path;
  range.objects++;
  object->begin_ = extent.begin;
  return object;
}

LoadedObject::~LoadedObject() {
  std::lock_guard lock(ranges_mutex);
  const auto range = ranges.find(begin_);
  if (range != ranges.end() && --range->second.objects == 0) ranges.erase(range);
  dlclose(handle_);  // under the lock: what is mapped here next finds the range free
}

const EmulatorKernel* LoadedObject::find(const std::string& name) const {
  for (int i = 0; i < library_->kernel_count; i++)
    if (name == library_->kernels[i].name) return &library_->kernels[i];
  return nullptr;
}

bool in_kernel_library(uintptr_t address) {
  std::lock_guard lock(ranges_mutex);
  const auto after = ranges.upper_bound(address);
  return after != ranges.begin() && address < std::prev(after)->second.end;
}

std::string source_line(uintptr_t code) {
  std::lock_guard lock(ranges_mutex);
  const auto after = ranges.upper_bound(code);
  if (after == ranges.begin()) return "?";
  auto& [begin, range] = *std::prev(after);
  const auto cached = range.lines.find(code);
  if (cached != range.lines.end()) return cached->second;
  char offset[32];
  snprintf(offset, sizeof offset, "0x%zx", static_cast<size_t>(code - 1 - begin));  // the call, not what follows it
  // From the innermost inlined function outwards: the first line that is not of the Metal library.
  std::istringstream lines(run_process({"addr2line", "-i", "-e", range.path, offset}).output);
  std::string found = "?";
  for (std::string line; found == "?" && std::getline(lines, line);) {
    if (line.empty() || line[0] == '?' || line.find("/emulator/") != std::string::npos) continue;
    line = line.substr(0, line.find(' '));
    found = line.substr(line.rfind('/') + 1);
  }
  return range.lines[code] = found;
}

}  // namespace emulator

extern "C" {
int emulator_constant_defined(unsigned index) { return emulator::loading && emulator::loading->count(index) ? 1 : 0; }

void emulator_constant_value(unsigned index, void* value, unsigned size) {
  memset(value, 0, size);
  if (!emulator_constant_defined(index)) return;
  const std::vector<uint8_t>& bytes = emulator::loading->at(index);
  memcpy(value, bytes.data(), std::min<size_t>(size, bytes.size()));
}
}
