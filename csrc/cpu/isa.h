#pragma once
// Instruction sets of the CPU device, found at run time.

#include <string>
#include <vector>

namespace saragossa::cpu {

enum class Isa {
  scalar,  // the reference: plain loops
  avx2,    // AVX2, FMA, F16C
  avx512,  // AVX-512 F, BW, VL, DQ with VNNI and BF16
  neon,    // Armv8.2-A Advanced SIMD with dot product
};

const char* name_of(Isa isa);
/// What this machine can run, best last; scalar is always there.
std::vector<Isa> available();
/// "auto" gives the best one; a name that is unknown or that the machine lacks is Error(usage).
Isa select(const std::string& name);

}  // namespace saragossa::cpu
