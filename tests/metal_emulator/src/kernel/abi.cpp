// The functions of abi.h that kernels call.
#include "msl/emulator/abi.h"

#include <cstring>

#include "worker.h"

extern "C" {

int emulator_perturb_ulp = 0;
int emulator_cooperative_layout = 0;
unsigned long emulator_perturb_seed = 0;

const EmulatorThread* emulator_thread() { return &emulator::current_worker()->current->thread; }

void emulator_threadgroup_barrier(unsigned flags, EmulatorSite site) {
  emulator::current_worker()->threadgroup_barrier(flags, site);
}

void emulator_simdgroup_barrier(unsigned flags, EmulatorSite site) {
  emulator::current_worker()->simdgroup_operation(nullptr, nullptr, nullptr, "simdgroup_barrier", flags, site);
}

void emulator_simdgroup_operation(EmulatorLaneOperation operation, const void* in, void* out, const char* name,
                                  EmulatorSite site) {
  emulator::current_worker()->simdgroup_operation(operation, in, out, name, 0, site);
}

void* emulator_threadgroup_variable(const void* declaration, unsigned long size, unsigned long alignment,
                                    const char* name) {
  return emulator::current_worker()->threadgroup_variable(declaration, size, alignment, name);
}

void emulator_fault(const char* message, EmulatorSite site) {
  emulator::current_worker()->found("fault", std::string(message) + ", at " + emulator::place(site));
}

/// float -> bfloat, to nearest even. clang calls it; the system's runtime library may lack it.
__attribute__((visibility("default"))) __bf16 __truncsfbf2(float value) {
  unsigned bits;
  memcpy(&bits, &value, 4);
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  const auto upper = static_cast<unsigned short>(nan ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  __bf16 result;
  memcpy(&result, &upper, 2);
  return result;
}
}
