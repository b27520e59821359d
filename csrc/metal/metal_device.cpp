#include "metal/metal_device.h"

#include <chrono>

#include "metal/footprint.h"
#include "metal/metal_encoder.h"
#include "metal/tensor_check.h"
#include "params/gated_delta.h"
#include "params/moe.h"
#include "params/norm.h"
#include "params/sample_kernels.h"

namespace saragossa {
namespace metal {
namespace {

class MetalDevice final : public Device {
 public:
  MetalDevice(NS::SharedPtr<MTL::Device> device, const Switches& switches)
      : Device(switches), context_(std::make_shared<Context>(std::move(device), switches)) {
    Capabilities& gpu = context_->gpu;
    gpu.tensor_ops = gpu.tensor_ops && switches.metal_matmul && switches.metal_tensor_ops;
    if (!gpu.tensor_ops) return;
    const std::string wrong = check_tensor_ops(*this);
    gpu.tensor_ops = wrong.empty();
    note_ = wrong.empty() ? ", tensor operations" : ", tensor operations off: " + wrong;
  }

  std::string name() const override { return "metal"; }
  std::string description() const override { return context_->gpu.gpu + note_; }
  bool asynchronous() const override { return context_->switches.metal_resident; }

  std::shared_ptr<Buffer> allocate(int64_t bytes, bool) override { return context_->memory.allocate(bytes); }
  std::shared_ptr<Buffer> map(std::shared_ptr<MappedFile> file, int64_t offset, int64_t bytes) override {
    return context_->memory.map(file, offset, bytes);
  }
  std::unique_ptr<CommandEncoder> begin() override { return std::make_unique<MetalEncoder>(*this, context_); }
  bool lazy_memory() const override { return false; }
  void check(const ModelSizes& sizes) const override;
  void wait_idle() override { context_->wait_idle(); }
  std::vector<KernelTime> kernel_times() const override { return context_->times(); }
  DeviceMemory memory() const override {
    return {phys_footprint(), static_cast<int64_t>(context_->device->currentAllocatedSize()),
            context_->gpu.working_set};
  }

 private:
  std::shared_ptr<Context> context_;
  std::string note_;  // of the description
};

void MetalDevice::check(const ModelSizes& sizes) const {
  struct Limit {
    const char* what;
    int64_t found, most;
  };
  const Limit limits[] = {
      {"a hidden size", sizes.hidden, SG_NORM_MOST},
      {"a vocabulary", sizes.vocab, int64_t{SG_SAMPLE_MAX_BLOCKS} * SG_SAMPLE_BLOCK},
      {"keys of delta nets", sizes.delta_key_dim, SG_DELTA_MOST_KEY_DIM},
      {"experts of a layer:", sizes.experts, SG_MOE_MOST_EXPERTS},
      {"experts of a token:", sizes.experts_per_token, SG_MOE_MOST_CHOSEN},
  };
  for (const Limit& limit : limits)
    if (limit.found > limit.most)
      fail(ErrorKind::device, "device 'metal' cannot run this model: it has ", limit.what, " ", limit.found,
           ", the kernels take at most ", limit.most, "; use --device cpu");
}

NS::SharedPtr<MTL::Device> system_device() { return NS::TransferPtr(MTL::CreateSystemDefaultDevice()); }

NS::SharedPtr<MTL::Device> required_device() {
  auto device = system_device();
  if (!device)
    fail(ErrorKind::usage, "device 'metal' is not available: this machine has no Metal GPU; use --device cpu");
  const Capabilities gpu = capabilities_of(device.get());
  if (!is_supported(gpu))
    fail(ErrorKind::usage, "device 'metal' is not available: this system is macOS ", gpu.os_major, ".", gpu.os_minor,
         ", macOS ", kOldestMacOs, ".0 or newer is needed; update it, or use --device cpu");
  return device;
}

}  // namespace
}  // namespace metal

bool metal_available() {
  const metal::Pool pool;
  const auto device = metal::system_device();
  return device && metal::is_supported(metal::capabilities_of(device.get()));
}

std::unique_ptr<Device> make_metal_device(const Switches& switches) {
  return std::make_unique<metal::MetalDevice>(metal::required_device(), switches);
}

std::vector<CompiledKernels> compile_metal_kernels() {
  const metal::Pool pool;
  const auto device = metal::required_device();
  const metal::Capabilities gpu = metal::capabilities_of(device.get());
  std::vector<CompiledKernels> out;
  for (const metal::KernelSource& source : metal::kernel_sources()) {
    if (!takes(gpu, source.family)) continue;
    NS::Error* error = nullptr;
    const auto start = std::chrono::steady_clock::now();
    const auto library = metal::compile(device.get(), gpu, source, &error);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    CompiledKernels family{source.family, took.count(), 0, {}};
    if (library)
      family.functions = static_cast<int>(library->functionNames()->count());
    else
      family.error = metal::text_of(error);
    out.push_back(std::move(family));
  }
  return out;
}

}  // namespace saragossa
