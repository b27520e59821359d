#pragma once
// Findings of the checkers, merged by text and bounded in number.
//
// Kinds: out-of-bounds, unbound-buffer, freed-buffer, uninitialised, race, hazard, divergent-simd,
// divergent-barrier, early-exit, deadlock, limit, binding, fault (the kernel side) and api (the host side).

#include <cstdint>
#include <string>
#include <vector>

namespace emulator {

struct Report {
  std::string kind;
  std::string text;
  uint64_t count = 1;
};

/// Records a finding. Safe from any thread. With Settings::trap the process ends here.
void report(const std::string& kind, const std::string& text);

/// The findings in the order of their first appearance; the list is empty afterwards.
std::vector<Report> take_reports();

}  // namespace emulator
