#pragma once
// Calls of clang: Metal source -> C++ -> shared object.

#include <filesystem>
#include <string>

#include "compile.h"

namespace emulator {

/// Folder of the Metal headers (include/msl).
std::string header_folder();

/// Runs clang's preprocessor. False and messages in `log` where it fails. `more`: further options.
bool preprocess(const CompileRequest& request, std::string& text, std::string& log,
                const std::vector<std::string>& more = {});

/// Checks a program for address spaces as Metal has them: clang's C++ for OpenCL without the generic space has the same
/// rules. `program`: of rewrite_strict().
bool check_address_spaces(const std::string& program, std::string& log);

/// Builds (or finds) the shared object of a rewritten program; empty and messages in `log` where clang refuses it.
std::filesystem::path build(const std::string& program, const CompileRequest& request, bool instrumented,
                            std::string& log, bool& cached);

/// All options that change what build() makes, in one text.
std::string build_options(const CompileRequest& request, bool instrumented);

}  // namespace emulator
