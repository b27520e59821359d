// The contract between a compiled kernel library and the runtime. Both sides include it; a kernel has no other
// header of the system.
#pragma once

enum EmulatorParameterKind {
  kind_buffer,
  kind_threadgroup_buffer,
  kind_thread_position_in_grid,
  kind_thread_position_in_threadgroup,
  kind_threadgroup_position_in_grid,
  kind_threads_per_threadgroup,
  kind_dispatch_threads_per_threadgroup,
  kind_threadgroups_per_grid,
  kind_threads_per_grid,
  kind_thread_index_in_threadgroup,
  kind_thread_index_in_simdgroup,
  kind_simdgroup_index_in_threadgroup,
  kind_simdgroups_per_threadgroup,
  kind_dispatch_simdgroups_per_threadgroup,
  kind_threads_per_simdgroup,
  kind_thread_index_in_quadgroup,
  kind_quadgroup_index_in_threadgroup,
  kind_quadgroups_per_threadgroup,
  kind_unknown
};

/// One threadgroup while it runs.
struct EmulatorGroup {
  unsigned position_in_grid[3];
  unsigned threads_per_threadgroup[3];           // smaller at the grid's end
  unsigned dispatch_threads_per_threadgroup[3];  // as dispatched
  unsigned threadgroups_per_grid[3];
  unsigned threads_per_grid[3];
  unsigned threads, simdgroups;
  void* buffers[31];
  void* threadgroup_buffers[31];
};

/// One GPU thread.
struct EmulatorThread {
  unsigned position_in_threadgroup[3];
  unsigned position_in_grid[3];
  unsigned index, lane, simdgroup;
  const EmulatorGroup* group;
};

/// A place in the kernel's source.
struct EmulatorSite {
  const char* file;
  unsigned line, column;
};

struct EmulatorParameter {
  const char* name;
  int kind, index;
  int is_const, is_reference;
  unsigned size, alignment;  // of what is pointed to
  int active;                // its function constant is true, or it has none
};
struct EmulatorKernel {
  const char* name;
  void (*entry)(const EmulatorThread*);
  const EmulatorParameter* parameters;
  int parameter_count;
  int max_total_threads;
  const char* constants;  // names of the function constants that it uses, each followed by a space
};
struct EmulatorConstant {
  const char* name;
  unsigned index;
  const char* type;
  unsigned size;
  int asked;  // is_function_constant_defined() of it occurs
};
/// Every kernel library exports one of these: `emulator_library`.
struct EmulatorLibrary {
  const EmulatorKernel* kernels;
  int kernel_count;
  const EmulatorConstant* constants;
  int constant_count;
};

/// What a simdgroup does together: run by the last lane to arrive, for the lanes of `mask`.
typedef void (*EmulatorLaneOperation)(const void* const* in, void* const* out, unsigned mask);

extern "C" {
// Constant while a kernel runs, and declared so: then their reads are not taken for accesses of the kernel.
#ifndef EMULATOR_RUNTIME
extern const int emulator_perturb_ulp;         // Settings::perturb_fast
extern const int emulator_cooperative_layout;  // 0: the usual one; else a seed
extern const unsigned long emulator_perturb_seed;
#endif

const EmulatorThread* emulator_thread();
__attribute__((convergent)) void emulator_threadgroup_barrier(unsigned flags, EmulatorSite site);
__attribute__((convergent)) void emulator_simdgroup_barrier(unsigned flags, EmulatorSite site);
__attribute__((convergent)) void emulator_simdgroup_operation(EmulatorLaneOperation operation, const void* in,
                                                              void* out, const char* name, EmulatorSite site);
/// Memory of a threadgroup variable; `declaration` tells one from another.
void* emulator_threadgroup_variable(const void* declaration, unsigned long size, unsigned long alignment,
                                    const char* name);
int emulator_constant_defined(unsigned index);
void emulator_constant_value(unsigned index, void* value, unsigned size);
/// A mistake that only a library function can see.
void emulator_fault(const char* message, EmulatorSite site);
}
