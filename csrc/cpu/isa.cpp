#include "cpu/isa.h"

#include "core/errors.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace saragossa::cpu {

#if defined(__aarch64__)
namespace {

/// sdot: every Apple silicon Mac has it, Linux tells.
bool has_dot_product() {
#if defined(__APPLE__)
  return true;
#elif defined(__linux__)
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
  return false;
#endif
}

}  // namespace
#endif

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::scalar: return "scalar";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
    case Isa::neon: return "neon";
  }
  return "?";
}

std::vector<Isa> available() {
  std::vector<Isa> found{Isa::scalar};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
    found.push_back(Isa::avx2);
  if (found.back() == Isa::avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni"))
    found.push_back(Isa::avx512);
#elif defined(__aarch64__)
  if (has_dot_product()) found.push_back(Isa::neon);
#endif
  return found;
}

Isa select(const std::string& name) {
  const std::vector<Isa> found = available();
  if (name == "auto") return found.back();
  std::string names;
  for (const Isa isa : found) {
    if (name == name_of(isa)) return isa;
    names += std::string(names.empty() ? "" : ", ") + name_of(isa);
  }
  fail(ErrorKind::usage, "instruction set '", name, "' is not available; this machine has: auto, ", names);
}

}  // namespace saragossa::cpu
