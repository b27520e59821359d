#include "metal/metal_device.h"

#include "metal/footprint.h"
#include "metal/metal_encoder.h"

namespace saragossa {
namespace metal {
namespace {

class MetalDevice final : public Device {
 public:
  MetalDevice(NS::SharedPtr<MTL::Device> device, const Switches& switches)
      : Device(switches), context_(std::make_shared<Context>(std::move(device), switches)) {}

  std::string name() const override { return "metal"; }
  std::string description() const override { return context_->gpu.gpu; }
  bool asynchronous() const override { return context_->switches.metal_resident; }

  std::shared_ptr<Buffer> allocate(int64_t bytes, bool) override { return context_->memory.allocate(bytes); }
  std::shared_ptr<Buffer> map(std::shared_ptr<MappedFile> file, int64_t offset, int64_t bytes) override {
    return context_->memory.map(file, offset, bytes);
  }
  std::unique_ptr<CommandEncoder> begin() override { return std::make_unique<MetalEncoder>(*this, context_); }
  bool lazy_memory() const override { return false; }
  void wait_idle() override { context_->wait_idle(); }
  DeviceMemory memory() const override {
    return {phys_footprint(), static_cast<int64_t>(context_->device->currentAllocatedSize()),
            context_->gpu.working_set};
  }

 private:
  std::shared_ptr<Context> context_;
};

NS::SharedPtr<MTL::Device> system_device() { return NS::TransferPtr(MTL::CreateSystemDefaultDevice()); }

}  // namespace
}  // namespace metal

bool metal_available() { return static_cast<bool>(metal::system_device()); }

std::unique_ptr<Device> make_metal_device(const Switches& switches) {
  auto device = metal::system_device();
  if (!device)
    fail(ErrorKind::usage, "device 'metal' is not available: this machine has no Metal GPU; use --device cpu");
  return std::make_unique<metal::MetalDevice>(std::move(device), switches);
}

}  // namespace saragossa
