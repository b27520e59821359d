#include "metal/metal_encoder.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace saragossa::metal {
namespace {

int64_t bytes_of(DType dtype, const Shape& shape) { return (shape.numel() * size_of(dtype) + 63) / 64 * 64; }

}  // namespace

MetalEncoder::MetalEncoder(Device& device, std::shared_ptr<Context> context)
    : CommandEncoder(device), context_(std::move(context)), step_(std::make_unique<Step>(*context_)) {}

MetalEncoder::~MetalEncoder() {
  if (!step_) return;
  if (step_->encoder) step_->encoder->endEncoding();  // never committed: the ops are dropped
  // Parts of a long step that run already use what the records hold.
  if (!step_->earlier.empty()) step_->earlier.back()->waitUntilCompleted();
  context_->give_arena(std::move(step_->arena));
}

void MetalEncoder::order() {
  const size_t now = records().ops().size();
  if (ordered_ == now) return;
  ordered_ = now;
  if (records().ops().back().barrier) barrier();
}

void MetalEncoder::set_threadgroup_memory(int slot, int64_t bytes) {
  compute()->setThreadgroupMemoryLength(static_cast<NS::UInteger>(bytes), static_cast<NS::UInteger>(slot));
  threadgroup_slots_ |= 1u << slot;
}

void MetalEncoder::clear_threadgroup_memory() {
  for (int slot = 0; threadgroup_slots_ >> slot != 0; ++slot)
    if (threadgroup_slots_ >> slot & 1u) compute()->setThreadgroupMemoryLength(0, static_cast<NS::UInteger>(slot));
  threadgroup_slots_ = 0;
}

void MetalEncoder::barrier() {
  ++barriers_;
  compute()->memoryBarrier(MTL::BarrierScopeBuffers);
}

void MetalEncoder::dispatched(const Kernel& kernel) {
  if (context_->switches.metal_resident) return;
  threadgroup_slots_ = 0;  // a new encoder
  step_->cut(*context_);
  MTL::CommandBuffer* done = step_->earlier.back().get();
  done->waitUntilCompleted();
  context_->add_time(kernel.function, done->GPUEndTime() - done->GPUStartTime());
}

void MetalEncoder::work(int64_t multiply_adds) {
  if (!context_->switches.metal_resident) return;  // each dispatch has a command buffer of its own
  const bool cut = work_ > 0 && work_ + multiply_adds > context_->tuning.prefill_macs;
  work_ = cut ? multiply_adds : work_ + multiply_adds;
  if (!cut) return;
  threadgroup_slots_ = 0;  // a new encoder
  step_->cut(*context_);
  ++barriers_;  // it waits for the fence
}

int64_t MetalEncoder::rows_in_bound(int64_t multiply_adds_per_row) const {
  const int64_t rows = context_->tuning.prefill_macs / std::max<int64_t>(multiply_adds_per_row, 1);
  if (rows >= 64) return rows / 64 * 64;
  return std::max<int64_t>(16, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows))));
}

bool MetalEncoder::has_fused(FusedOp) const { return true; }

Submission MetalEncoder::do_submit(bool) {
  return Submission(std::make_shared<MetalSubmission>(context_, std::move(step_), take_records()));
}

OpScratch::OpScratch(MetalEncoder& encoder, std::initializer_list<std::pair<DType, Shape>> parts) : encoder_(encoder) {
  require(parts.size() <= parts_.size(), "metal: scratch of ", parts.size(), " parts");
  int64_t bytes = 0;
  for (const auto& [dtype, shape] : parts) bytes += bytes_of(dtype, shape);
  encoder.order();
  if (!encoder.shared_ || encoder.shared_used_ + bytes > encoder.shared_.numel()) {
    // What open scopes hold stays where it is; next time all of it has a place here.
    encoder.shared_ = encoder.scratch(DType::u8, {encoder.shared_used_ + bytes});
    encoder.shared_used_ = 0;
    encoder.shared_free_ = 0;
    ++encoder.shared_renewed_;
  } else if (encoder.barriers_ < encoder.shared_free_) {
    encoder.barrier();
  }
  renewed_ = encoder.shared_renewed_;
  begin_ = encoder.shared_used_;
  size_t i = 0;
  for (const auto& [dtype, shape] : parts) {
    parts_[i++] = {encoder.shared_.buffer, encoder.shared_.offset + encoder.shared_used_, dtype, shape};
    encoder.shared_used_ += bytes_of(dtype, shape);
  }
}

OpScratch::~OpScratch() {
  if (encoder_.shared_renewed_ == renewed_) encoder_.shared_used_ = begin_;
  encoder_.shared_free_ = encoder_.barriers_ + 1;
}

}  // namespace saragossa::metal
