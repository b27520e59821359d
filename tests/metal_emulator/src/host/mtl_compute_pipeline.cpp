#include "mtl_compute_pipeline.h"

#include <algorithm>

#include "classes.h"
#include "kernel/report.h"
#include "kernel/settings.h"
#include "mtl_binary_archive.h"
#include "mtl_device.h"

namespace emulator::host {
namespace {

constexpr const char* kErrorDomain = "AGXMetal";  // what Apple's GPU driver calls itself in pipeline errors
enum PipelineError : Integer { kInternal = 1, kUnsupported = 2, kInvalidInput = 3 };
constexpr UInteger kFailOnBinaryArchiveMiss = 1 << 2;

struct DescriptorMethods : MethodsOf<MTLComputePipelineDescriptor> {
  void set_function(MTLFunction* function) { self()->function = Ref(function); }
  MTLFunction* function() { return self()->function.get(); }
  void set_archives(NSArray* archives) { self()->binary_archives = Ref(archives); }
  NSArray* archives() { return self()->binary_archives.get(); }
  void set_max_threads(UInteger count) { self()->max_threads = count; }
  UInteger max_threads() { return self()->max_threads; }
  void set_multiple_of_width(bool promise) { self()->multiple_of_width = promise; }
  bool multiple_of_width() { return self()->multiple_of_width; }
  void reset() {
    self()->function = {};
    self()->binary_archives = {};
    self()->max_threads = 0;
    self()->multiple_of_width = false;
  }
};

struct PipelineMethods : MethodsOf<MTLComputePipelineState> {
  UInteger max_threads() { return self()->max_threads; }
  UInteger execution_width() { return static_cast<UInteger>(settings().reported_simd_width); }
  UInteger static_threadgroup_memory() { return self()->kernel->static_threadgroup_memory; }
};

MTLComputePipelineState* make(MTLFunction* function, NSError** error) {
  if (!function) {
    report("api", "a compute pipeline is made from a nil function, which raises on a Mac");
    set_error(error, kErrorDomain, kInvalidInput, "the function is nil");
    return nullptr;
  }
  const std::string& fail_of = settings().fail_compile_of;
  const bool named = !fail_of.empty() && function->kernel->name.find(fail_of) != std::string::npos;
  if (named || fails_now(settings().fail_pipeline)) {
    set_error(error, kErrorDomain, kInternal,
              "pipeline of '" + function->kernel->name + "': failed on request of the emulator's settings");
    return nullptr;
  }
  auto* pipeline = new MTLComputePipelineState;
  pipeline->kernel = function->kernel;
  pipeline->max_threads = static_cast<UInteger>(function->kernel->max_total_threads);
  return pipeline;
}

/// Whether one of the descriptor's archives holds the function.
bool in_archives(const MTLComputePipelineDescriptor& descriptor) {
  if (!descriptor.binary_archives) return false;
  for (const auto& object : descriptor.binary_archives->objects) {
    const auto* archive = dynamic_cast<const MTLBinaryArchive*>(object.get());
    if (archive && archive->functions.contains(descriptor.function->identity)) return true;
  }
  return false;
}

}  // namespace

MTLComputePipelineState* new_pipeline(MTLFunction* function, NSError** error) { return make(function, error); }

MTLComputePipelineState* new_pipeline_from_descriptor(MTLComputePipelineDescriptor* descriptor, UInteger options,
                                                      Object** reflection, NSError** error) {
  if (reflection) report("api", "the reflection of a compute pipeline is not modelled; pass nullptr");
  if (!descriptor->function) return make(nullptr, error);
  if ((options & kFailOnBinaryArchiveMiss) && !in_archives(*descriptor)) {
    set_error(error, kErrorDomain, kUnsupported,
              "pipeline of '" + descriptor->function->kernel->name + "': no binary archive of the descriptor has it");
    return nullptr;
  }
  MTLComputePipelineState* pipeline = make(descriptor->function.get(), error);
  if (!pipeline) return nullptr;
  pipeline->setLabel(descriptor->label());
  pipeline->multiple_of_width = descriptor->multiple_of_width;
  if (descriptor->max_threads) {
    const auto limit = static_cast<UInteger>(settings().max_threads_per_threadgroup);
    if (descriptor->max_threads > limit)
      report("api", "MTLComputePipelineDescriptor of '" + pipeline->kernel->name + "': maxTotalThreadsPerThreadgroup " +
                        std::to_string(descriptor->max_threads) + " exceeds the device's " + std::to_string(limit));
    pipeline->max_threads = std::min(descriptor->max_threads, pipeline->max_threads);
  }
  return pipeline;
}

void install_compute_pipeline() {
  define<MTLComputePipelineDescriptor>()
      .class_method<&MTLComputePipelineDescriptor::alloc>("alloc")
      .method<&MTLComputePipelineDescriptor::label>("label")
      .method<&MTLComputePipelineDescriptor::setLabel>("setLabel:")
      .method<&DescriptorMethods::set_function>("setComputeFunction:")
      .method<&DescriptorMethods::function>("computeFunction")
      .method<&DescriptorMethods::set_archives>("setBinaryArchives:")
      .method<&DescriptorMethods::archives>("binaryArchives")
      .method<&DescriptorMethods::set_max_threads>("setMaxTotalThreadsPerThreadgroup:")
      .method<&DescriptorMethods::max_threads>("maxTotalThreadsPerThreadgroup")
      .method<&DescriptorMethods::set_multiple_of_width>("setThreadGroupSizeIsMultipleOfThreadExecutionWidth:")
      .method<&DescriptorMethods::multiple_of_width>("threadGroupSizeIsMultipleOfThreadExecutionWidth")
      .method<&DescriptorMethods::reset>("reset");
  define<MTLComputePipelineState>()
      .method<&MTLComputePipelineState::label>("label")
      .method<&HasDevice::device>("device")
      .method<&PipelineMethods::max_threads>("maxTotalThreadsPerThreadgroup")
      .method<&PipelineMethods::execution_width>("threadExecutionWidth")
      .method<&PipelineMethods::static_threadgroup_memory>("staticThreadgroupMemoryLength");
}

}  // namespace emulator::host
