#pragma once
// Runs a program and reads what it prints.

#include <string>
#include <vector>

namespace emulator {

struct ProcessResult {
  int exit_code = -1;  // -1: could not be started, or ended by a signal
  std::string output;  // stdout and stderr
};
ProcessResult run_process(const std::vector<std::string>& arguments);

}  // namespace emulator
