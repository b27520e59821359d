#pragma once
// How many cores a process should use; the parts that read files take the root, for tests.

#include <string>
#include <vector>

namespace saragossa {

/// CPU quota of the cgroup (v2 or v1) in whole cores, rounded up; 0: no limit. Limits of parents count too.
int cgroup_quota(const std::string& root);

/// Those of `cpus` that are performance cores, one hardware thread each, as sysfs under `root` tells.
std::vector<int> performance_cores(const std::string& root, const std::vector<int>& cpus);

/// "0-2,5" as {0, 1, 2, 5}; stops at the first thing that is no list.
std::vector<int> parse_cpu_list(const std::string& text);

}  // namespace saragossa
