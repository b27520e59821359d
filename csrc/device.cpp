#include "device.h"

#include <algorithm>

#include "cpu/cpu_device.h"
#include "metal/metal_device.h"

namespace saragossa {

uint8_t* Buffer::host() {
  require(pending_writes_.load() == 0, "buffer: read before the submission that writes it was waited for");
  return bytes_;
}

Tensor Device::tensor(DType dtype, Shape shape, bool sparse) {
  return Tensor{allocate(shape.numel() * size_of(dtype), sparse), 0, dtype, shape};
}

void Device::poll_interrupt() {
  if (!interrupt_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_poll_ < std::chrono::milliseconds(20)) return;
  last_poll_ = now;
  interrupt_();
}

Tensor upload(Device& device, std::span<const int32_t> values) {
  const Tensor t = device.tensor(DType::i32, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), host_data<int32_t>(t));
  return t;
}

std::unique_ptr<Device> make_device(const std::string& name, const Switches& switches) {
  if (name == "cpu") return cpu::make_cpu_device(switches);
  if (name == "metal") return make_metal_device(switches);
  if (name == "auto") return metal_available() ? make_metal_device(switches) : cpu::make_cpu_device(switches);
  fail(ErrorKind::usage, "device '", name, "' is unknown; supported are auto, cpu, metal");
}

}  // namespace saragossa
