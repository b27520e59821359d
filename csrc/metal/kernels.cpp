#include "metal/kernels.h"

#include <cstring>

#include "core/errors.h"

namespace saragossa::metal {
namespace {

constexpr NS::UInteger kSimdWidth = 32;  // of every Apple GPU so far; kernels count lanes by it

const KernelSource& source_of(const char* family) {
  for (const KernelSource& source : kernel_sources())
    if (std::strcmp(source.family, family) == 0) return source;
  fail(ErrorKind::internal, "metal: no kernels of family '", family, "' in this build");
}

/// Of everything that machine code depends on.
std::string archive_key(const Capabilities& gpu) {
  uint64_t hash = 14695981039346656037ull;
  const auto mix = [&hash](const char* text) {
    for (; *text; ++text) hash = (hash ^ static_cast<unsigned char>(*text)) * 1099511628211ull;
  };
  for (const KernelSource& source : kernel_sources()) mix(source.sha256);
  mix(gpu.gpu.c_str());
  mix(gpu.os_build.c_str());
  std::ostringstream out;
  out << "kernels-" << std::hex << hash;
  return out.str();
}

}  // namespace

NS::SharedPtr<MTL::Library> compile(MTL::Device* device, const Capabilities& gpu, const KernelSource& source,
                                    NS::Error** error) {
  const auto options = NS::TransferPtr(MTL::CompileOptions::alloc()->init());
  // Safe math costs nothing where memory is the limit, and keeps results equal between devices and systems.
  if (gpu.math_mode)
    options->setMathMode(MTL::MathModeSafe);
  else
    options->setFastMathEnabled(false);
  const auto language = static_cast<NS::UInteger>(needs_of(source.family).language);
  options->setLanguageVersion(static_cast<MTL::LanguageVersion>((language / 10 << 16) + language % 10));
  return NS::TransferPtr(device->newLibrary(ns_string(source.text), options.get(), error));
}

size_t Kernels::Hash::operator()(const Key& key) const {
  uint64_t hash = reinterpret_cast<uintptr_t>(key.kernel);
  for (size_t i = 0; i < key.constants.count; ++i) hash = (hash ^ key.constants.values[i]) * 0x9e3779b97f4a7c15ull;
  return hash ^ (hash >> 29);
}

Kernels::Kernels(MTL::Device* device, const Capabilities& gpu, const std::string& cache_folder)
    : device_(device), gpu_(gpu), archive_(device, cache_folder, archive_key(gpu)) {}

Kernels::~Kernels() { archive_.save(); }

MTL::ComputePipelineState* Kernels::pipeline(const Kernel& kernel, const Constants& constants) {
  const std::lock_guard lock(mutex_);
  NS::SharedPtr<MTL::ComputePipelineState>& slot = pipelines_[{&kernel, constants}];
  if (!slot) {
    auto built = build(kernel, constants);
    if (const auto lanes = built->threadExecutionWidth(); lanes != kSimdWidth)
      fail(ErrorKind::device, "metal: kernel ", kernel.function, " runs in simdgroups of ", lanes,
           " threads on this GPU, kernels are written for ", kSimdWidth, "; use --device cpu");
    slot = std::move(built);
    built_ = std::chrono::steady_clock::now();
    unsaved_ = true;
  }
  return slot.get();
}

void Kernels::save_when_quiet() {
  const std::lock_guard lock(mutex_);
  if (!unsaved_ || std::chrono::steady_clock::now() - built_ < std::chrono::seconds(1)) return;
  archive_.save();
  unsaved_ = false;
}

MTL::Library* Kernels::library(const char* family) {
  NS::SharedPtr<MTL::Library>& slot = libraries_[family];
  if (slot) return slot.get();
  NS::Error* error = nullptr;
  slot = compile(device_, gpu_, source_of(family), &error);
  if (!slot) fail(ErrorKind::device, "metal: the kernels of '", family, "' do not compile: ", text_of(error));
  return slot.get();
}

NS::SharedPtr<MTL::ComputePipelineState> Kernels::build(const Kernel& kernel, const Constants& constants) {
  const Pool pool;
  const auto values = NS::TransferPtr(MTL::FunctionConstantValues::alloc()->init());
  for (size_t i = 0; i < constants.count; ++i)
    values->setConstantValue(&constants.values[i], MTL::DataTypeUInt, static_cast<NS::UInteger>(i));
  NS::Error* error = nullptr;
  const auto function =
      NS::TransferPtr(library(kernel.family)->newFunction(ns_string(kernel.function), values.get(), &error));
  if (!function) fail(ErrorKind::device, "metal: kernel ", kernel.function, ": ", text_of(error));
  const auto descriptor = NS::TransferPtr(MTL::ComputePipelineDescriptor::alloc()->init());
  descriptor->setComputeFunction(function.get());
  descriptor->setLabel(ns_string(kernel.function));
  NS::SharedPtr<MTL::ComputePipelineState> pipeline;
  MTL::PipelineOption option = MTL::PipelineOptionNone;
  const auto create = [&] {
    pipeline = NS::TransferPtr(device_->newComputePipelineState(descriptor.get(), option, nullptr, &error));
  };
  if (NS::Object* archive = archive_.get()) {
    descriptor->setBinaryArchives(NS::Array::array(&archive, 1));
    option = MTL::PipelineOptionFailOnBinaryArchiveMiss;
    create();
    if (pipeline) return pipeline;
    option = MTL::PipelineOptionNone;
    archive_.add(descriptor.get());  // compiles; the pipeline below takes it from there
  }
  create();
  if (!pipeline) fail(ErrorKind::device, "metal: no pipeline for kernel ", kernel.function, ": ", text_of(error));
  return pipeline;
}

}  // namespace saragossa::metal
