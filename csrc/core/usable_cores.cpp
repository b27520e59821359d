#include "core/usable_cores.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/thread_pool.h"

#if defined(__linux__)
#include <sched.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace saragossa {
namespace {

constexpr int kMaxCpus = 8192;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Cores that `quota` microseconds in each `period` are worth, rounded up; 0: no limit.
int cores_of(double quota, double period) {
  if (quota <= 0.0 || period <= 0.0) return 0;
  const double cores = quota / period;
  const int whole = static_cast<int>(std::min(cores, 1e6));
  return std::max(whole < cores ? whole + 1 : whole, 1);
}

int tighter(int a, int b) {
  if (a == 0 || b == 0) return std::max(a, b);
  return std::min(a, b);
}

/// The directory and its parents, up to and with "".
std::vector<std::string> and_parents(std::string path) {
  std::vector<std::string> found;
  while (!path.empty() && path != "/") {
    found.push_back(path);
    path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
  found.push_back("");
  return found;
}

int quota_v2(const std::string& directory) {  // "200000 100000", or "max 100000"
  std::istringstream text(first_line(directory + "/cpu.max"));
  double quota = 0.0;
  double period = 0.0;
  return text >> quota >> period ? cores_of(quota, period) : 0;
}

int quota_v1(const std::string& directory) {  // -1: no limit
  return cores_of(std::atof(first_line(directory + "/cpu.cfs_quota_us").c_str()),
                  std::atof(first_line(directory + "/cpu.cfs_period_us").c_str()));
}

bool names_cpu(const std::string& controllers) {
  std::istringstream list(controllers);
  std::string name;
  while (std::getline(list, name, ','))
    if (name == "cpu") return true;
  return false;
}

}  // namespace

std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> cpus;
  std::istringstream list(text);
  std::string item;
  while (std::getline(list, item, ',')) {
    int first = 0;
    int last = 0;
    char dash = 0;
    std::istringstream range(item);
    if (!(range >> first)) break;
    last = first;
    if (range >> dash && (dash != '-' || !(range >> last))) break;
    if (first < 0 || last >= kMaxCpus) break;
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

int cgroup_quota(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");  // lines "id:controllers:path"; v2 is "0::path"
  std::string line;
  int cores = 0;
  while (std::getline(file, line)) {
    const size_t a = line.find(':');
    const size_t b = a == std::string::npos ? a : line.find(':', a + 1);
    if (b == std::string::npos) continue;
    const std::string controllers = line.substr(a + 1, b - a - 1);
    // In a container the path may be the host's, which does not exist here: then the mount's root holds the limit.
    for (const std::string& path : and_parents(line.substr(b + 1))) {
      if (controllers.empty()) cores = tighter(cores, quota_v2(root + "/sys/fs/cgroup" + path));
      if (!names_cpu(controllers)) continue;
      cores = tighter(cores, quota_v1(root + "/sys/fs/cgroup/cpu" + path));
      cores = tighter(cores, quota_v1(root + "/sys/fs/cgroup/cpu,cpuacct" + path));
    }
  }
  return cores;
}

std::vector<int> performance_cores(const std::string& root, const std::vector<int>& cpus) {
  std::vector<int> chosen = cpus;
  const auto keep_if = [&](auto&& wanted) {
    std::vector<int> kept;
    std::copy_if(chosen.begin(), chosen.end(), std::back_inserter(kept), wanted);
    if (!kept.empty()) chosen = kept;
  };
  // Hybrid x86 lists its performance cores.
  const std::vector<int> fast = parse_cpu_list(first_line(root + "/sys/devices/cpu_core/cpus"));
  if (!fast.empty()) keep_if([&](int cpu) { return std::find(fast.begin(), fast.end(), cpu) != fast.end(); });
  // Arm gives a capacity relative to the fastest core's 1024; the little ones have less than half.
  const auto of_cpu = [&](int cpu, const char* name) {
    return first_line(root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/" + name);
  };
  int most = 0;
  for (const int cpu : chosen) most = std::max(most, std::atoi(of_cpu(cpu, "cpu_capacity").c_str()));
  if (most > 0) keep_if([&](int cpu) { return 2 * std::atoi(of_cpu(cpu, "cpu_capacity").c_str()) >= most; });
  // One hardware thread per core: two share the core's ports and its bandwidth.
  std::vector<int> taken;
  keep_if([&](int cpu) {
    if (std::find(taken.begin(), taken.end(), cpu) != taken.end()) return false;
    const std::vector<int> siblings = parse_cpu_list(of_cpu(cpu, "topology/thread_siblings_list"));
    taken.insert(taken.end(), siblings.begin(), siblings.end());
    return true;
  });
  return chosen;
}

int usable_cores() {
#if defined(__linux__)
  std::vector<int> cpus;
  // More CPUs than the set has room for: EINVAL, so it grows.
  for (int room = 1024; room <= kMaxCpus && cpus.empty(); room *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(room));
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(room));
    if (sched_getaffinity(0, bytes, set) == 0)
      for (int cpu = 0; cpu < room; ++cpu)
        if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set)) cpus.push_back(cpu);
    CPU_FREE(set);
  }
  int cores = static_cast<int>(performance_cores("", cpus).size());
  if (cores == 0) cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(tighter(cores, cgroup_quota("")), 1);
#elif defined(__APPLE__)
  int cores = 0;
  size_t bytes = sizeof(cores);
  if (sysctlbyname("hw.perflevel0.physicalcpu", &cores, &bytes, nullptr, 0) != 0 || cores < 1)
    cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(cores, 1);
#else
  return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
#endif
}

}  // namespace saragossa
