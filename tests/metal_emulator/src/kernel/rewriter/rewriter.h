#pragma once
// Metal Shading Language -> C++, on the level of tokens. It changes only what C++ has no word for: attributes,
// `kernel`, threadgroup variables, function constants, explicit instantiations. Types are left to templates (entry.h).

#include <string>
#include <vector>

namespace emulator::rewriter {

struct Lint {
  int line;
  std::string message;
  bool error = true;
};

struct Rewritten {
  std::string text;
  std::vector<Lint> lints;
};

/// `preprocessed`: output of clang -E, line markers kept. `language`: as __METAL_VERSION__; words of newer ones are
/// refused. The result is C++ for the emulator's library.h.
Rewritten rewrite(const std::string& preprocessed, int language);

/// The same program as C++ for OpenCL, for the check of address spaces (tools/check_msl.cpp).
Rewritten rewrite_strict(const std::string& preprocessed);

}  // namespace emulator::rewriter
