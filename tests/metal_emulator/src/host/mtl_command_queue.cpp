#include "mtl_command_queue.h"

#include "classes.h"
#include "mtl_command_buffer.h"
#include "mtl_device.h"

namespace emulator::host {
namespace {

MTLCommandBuffer* make_buffer(MTLCommandQueue* queue, bool retained) {
  queue->thread->admit("MTLCommandQueue '" + queue->label_text() + "'");
  return autoreleased(new MTLCommandBuffer(queue, retained));
}

struct QueueMethods : MethodsOf<MTLCommandQueue> {
  MTLCommandBuffer* command_buffer() { return make_buffer(self(), true); }
  MTLCommandBuffer* command_buffer_unretained() { return make_buffer(self(), false); }
  MTLCommandBuffer* command_buffer_with(MTLCommandBufferDescriptor* descriptor) {
    return make_buffer(self(), descriptor->retained_references);
  }
  void add_residency_set(MTLResidencySet* set) { self()->residency.add(set); }
  void add_residency_sets(MTLResidencySet* const sets[], UInteger count) { self()->residency.add_all(sets, count); }
  void remove_residency_set(MTLResidencySet* set) { self()->residency.remove(set); }
  void remove_residency_sets(MTLResidencySet* const sets[], UInteger count) {
    self()->residency.remove_all(sets, count);
  }
};

struct DescriptorMethods : MethodsOf<MTLCommandQueueDescriptor> {
  void set_max(UInteger count) { self()->max_command_buffers = count; }
  UInteger max() { return self()->max_command_buffers; }
};

}  // namespace

void install_command_queue() {
  constexpr SystemVersion kSequoia{15, 0};
  define<MTLCommandQueueDescriptor>()
      .since(kSequoia)
      .class_method<&MTLCommandQueueDescriptor::alloc>("alloc")
      .method<&DescriptorMethods::set_max>("setMaxCommandBufferCount:")
      .method<&DescriptorMethods::max>("maxCommandBufferCount");
  define<MTLCommandQueue>()
      .method<&MTLCommandQueue::label>("label")
      .method<&MTLCommandQueue::setLabel>("setLabel:")
      .method<&HasDevice::device>("device")
      .method<&QueueMethods::command_buffer>("commandBuffer")
      .method<&QueueMethods::command_buffer_unretained>("commandBufferWithUnretainedReferences")
      .method<&QueueMethods::command_buffer_with>("commandBufferWithDescriptor:")
      .method<&QueueMethods::add_residency_set>("addResidencySet:", kSequoia)
      .method<&QueueMethods::add_residency_sets>("addResidencySets:count:", kSequoia)
      .method<&QueueMethods::remove_residency_set>("removeResidencySet:", kSequoia)
      .method<&QueueMethods::remove_residency_sets>("removeResidencySets:count:", kSequoia);
}

}  // namespace emulator::host
