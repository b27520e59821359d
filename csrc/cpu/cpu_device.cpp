#include "cpu/cpu_device.h"

#include "cpu/cpu_encoder.h"

namespace saragossa::cpu {
namespace {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const Switches& switches)
      : Device(switches),
        executor_(std::make_shared<Executor>(switches)),
        resources_(std::make_shared<ResourcePool>(switches.poison_scratch)) {}

  std::string name() const override { return "cpu"; }
  std::string description() const override {
    const int n = executor_->pool.size();
    return message(name_of(executor_->isa), ", ", n, n == 1 ? " thread" : " threads");
  }

  std::shared_ptr<Buffer> allocate(int64_t bytes, bool sparse) override {
    return std::make_shared<CpuBuffer>(bytes, sparse);
  }
  std::shared_ptr<Buffer> map(std::shared_ptr<MappedFile> file, int64_t offset, int64_t bytes) override {
    return std::make_shared<CpuBuffer>(std::move(file), offset, bytes);
  }
  std::unique_ptr<CommandEncoder> begin() override {
    return std::make_unique<CpuEncoder>(*this, executor_, resources_);
  }

 private:
  std::shared_ptr<Executor> executor_;
  std::shared_ptr<ResourcePool> resources_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(const Switches& switches) { return std::make_unique<CpuDevice>(switches); }

}  // namespace saragossa::cpu
