#include "mtl_encoder.h"

#include "kernel/counters.h"
#include "kernel/report.h"

namespace emulator::host {

bool Encoder::open(const char* selector) {
  if (!ended_) return true;
  report("api", buffer_->name() + ": " + selector + " after endEncoding");
  return false;
}

void Encoder::end() {
  if (!open("endEncoding")) return;
  ended_ = true;
  for (auto& fence : fences_to_update_) buffer_->commands.push_back(UpdateFence{std::move(fence)});
  fences_to_update_.clear();
  buffer_->encoder_open = false;
}

void Encoder::update_fence(MTLFence* fence) {
  if (open("updateFence:")) fences_to_update_.emplace_back(fence);
}

void Encoder::wait_for_fence(MTLFence* fence) {
  if (open("waitForFence:")) buffer_->commands.push_back(WaitForFence{Ref(fence)});
}

void Encoder::report_unended(const char* class_name) {
  if (ended_) return;
  report("api", buffer_->name() + ": a " + class_name + " is released without endEncoding");
  end();
}

void begin_encoder(MTLCommandBuffer& buffer, const char* selector, bool concurrent) {
  if (buffer.encoder_open)
    report("api", buffer.name() + ": " + selector + " while another encoder is open; call endEncoding first");
  buffer.editable(selector);
  buffer.encoder_open = true;
  ++calls().encoders;
  buffer.commands.push_back(BeginEncoder{concurrent});
}

}  // namespace emulator::host
