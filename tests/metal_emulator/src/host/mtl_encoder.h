#pragma once
// What compute and blit encoders share: they belong to a command buffer, and only one is open at a time.

#include "mtl_command_buffer.h"

namespace emulator::host {

class Encoder : public Labelled {
 public:
  /// False, with a report, after endEncoding.
  bool open(const char* selector);
  void end();
  void update_fence(MTLFence* fence);
  void wait_for_fence(MTLFence* fence);
  void debug_group(NSString*) {}
  void end_debug_group() {}

  MTLCommandBuffer& buffer() { return *buffer_.get(); }

 protected:
  /// Called by the constructors of the concrete encoders.
  void belong_to(MTLCommandBuffer* buffer) { buffer_ = Ref(buffer); }
  /// Called by the destructors of the concrete encoders, which still know their names.
  void report_unended(const char* class_name);

 private:
  Ref<MTLCommandBuffer> buffer_;
  std::vector<Ref<MTLFence>> fences_to_update_;  // a fence is updated when all of the encoder's work is done
  bool ended_ = false;
};

/// -[MTLCommandBuffer computeCommandEncoder...] and blitCommandEncoder; autoreleased.
Object* open_compute_encoder(MTLCommandBuffer* buffer, bool concurrent);
Object* open_blit_encoder(MTLCommandBuffer* buffer);

/// Opens an encoder of that type: reports one that is open already, or a buffer that was committed.
void begin_encoder(MTLCommandBuffer& buffer, const char* selector, bool concurrent);

/// The selectors of MTLCommandEncoder.
template <class T>
Definition define_encoder() {
  Definition definition = define<T>();
  definition.template method<&T::label>("label")
      .template method<&T::setLabel>("setLabel:")
      .template method<&T::end>("endEncoding")
      .template method<&T::update_fence>("updateFence:")
      .template method<&T::wait_for_fence>("waitForFence:")
      .template method<&T::debug_group>("pushDebugGroup:")
      .template method<&T::debug_group>("insertDebugSignpost:")
      .template method<&T::end_debug_group>("popDebugGroup");
  return definition;
}

}  // namespace emulator::host
