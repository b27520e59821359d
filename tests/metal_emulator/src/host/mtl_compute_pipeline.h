#pragma once
// MTLComputePipelineState and its descriptor.

#include "kernel/execute.h"
#include "mtl_library.h"

namespace emulator::host {

struct MTLComputePipelineDescriptor final : Instance<MTLComputePipelineDescriptor, Labelled> {
  static constexpr const char* kName = "MTLComputePipelineDescriptor";
  Ref<MTLFunction> function;
  Ref<NSArray> binary_archives;
  UInteger max_threads = 0;  // maxTotalThreadsPerThreadgroup; 0: what the kernel has
  bool multiple_of_width = false;
};

struct MTLComputePipelineState final : Instance<MTLComputePipelineState, Labelled> {
  static constexpr const char* kName = "MTLComputePipelineState";
  std::shared_ptr<const Kernel> kernel;
  UInteger max_threads = 0;
  bool multiple_of_width = false;
  std::shared_ptr<int> life = std::make_shared<int>();  // commands watch it: the pipeline must outlive them
};

constexpr UInteger kSimdWidth = 32;

MTLComputePipelineState* new_pipeline(MTLFunction* function, NSError** error);
MTLComputePipelineState* new_pipeline_from_descriptor(MTLComputePipelineDescriptor* descriptor, UInteger options,
                                                      Object** reflection, NSError** error);

}  // namespace emulator::host
