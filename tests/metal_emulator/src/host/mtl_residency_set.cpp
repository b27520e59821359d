#include "mtl_residency_set.h"

#include "classes.h"
#include "kernel/report.h"
#include "mtl_device.h"

namespace emulator::host {
namespace {

struct DescriptorMethods : MethodsOf<MTLResidencySetDescriptor> {
  void set_initial_capacity(UInteger capacity) { self()->initial_capacity = capacity; }
  UInteger initial_capacity() { return self()->initial_capacity; }
};

struct SetMethods : MethodsOf<MTLResidencySet> {
  bool contains(Object* buffer) {
    return std::ranges::any_of(self()->members, [&](const auto& own) { return own.get() == buffer; });
  }
  void add(MTLBuffer* buffer) {
    if (contains(buffer)) return;
    self()->members.emplace_back(buffer);
    self()->changed = true;
  }
  void add_all(MTLBuffer* const buffers[], UInteger count) {
    for (UInteger i = 0; i < count; ++i) add(buffers[i]);
  }
  void remove(MTLBuffer* buffer) {
    std::erase_if(self()->members, [&](const auto& own) { return own.get() == buffer; });
    self()->changed = true;
  }
  void remove_many(MTLBuffer* const buffers[], UInteger count) {
    for (UInteger i = 0; i < count; ++i) remove(buffers[i]);
  }
  void remove_all() {
    self()->members.clear();
    self()->changed = true;
  }
  void commit() {
    self()->committed = self()->members;
    self()->changed = false;
  }
  void request_residency() {
    if (self()->changed)
      report("api", "MTLResidencySet '" + self()->label_text() +
                        "': requestResidency with changes that were not committed; call commit first");
  }
  void end_residency() {}
  UInteger count() { return self()->members.size(); }
  uint64_t allocated_size() {
    uint64_t bytes = 0;
    for (const auto& buffer : self()->committed) bytes += buffer->byte_length;
    return bytes;
  }
  NSArray* all() {
    auto* array = autoreleased(new NSArray);
    for (const auto& buffer : self()->members) array->objects.emplace_back(buffer.get());
    return array;
  }
};

}  // namespace

MTLResidencySet* new_residency_set(MTLResidencySetDescriptor* descriptor, NSError** error) {
  if (!descriptor) {
    set_error(error, "MTLResidencySetErrorDomain", 1, "the descriptor is nil");
    return nullptr;
  }
  auto* set = new MTLResidencySet;
  set->setLabel(descriptor->label());
  return set;
}

void install_residency_set() {
  constexpr SystemVersion kSequoia{15, 0};
  define<MTLResidencySetDescriptor>()
      .since(kSequoia)
      .class_method<&MTLResidencySetDescriptor::alloc>("alloc")
      .method<&MTLResidencySetDescriptor::label>("label")
      .method<&MTLResidencySetDescriptor::setLabel>("setLabel:")
      .method<&DescriptorMethods::set_initial_capacity>("setInitialCapacity:")
      .method<&DescriptorMethods::initial_capacity>("initialCapacity");
  define<MTLResidencySet>()
      .since(kSequoia)
      .method<&MTLResidencySet::label>("label")
      .method<&HasDevice::device>("device")
      .method<&SetMethods::add>("addAllocation:")
      .method<&SetMethods::add_all>("addAllocations:count:")
      .method<&SetMethods::remove>("removeAllocation:")
      .method<&SetMethods::remove_many>("removeAllocations:count:")
      .method<&SetMethods::remove_all>("removeAllAllocations")
      .method<&SetMethods::contains>("containsAllocation:")
      .method<&SetMethods::commit>("commit")
      .method<&SetMethods::request_residency>("requestResidency")
      .method<&SetMethods::end_residency>("endResidency")
      .method<&SetMethods::count>("allocationCount")
      .method<&SetMethods::allocated_size>("allocatedSize")
      .method<&SetMethods::all>("allAllocations");
}

}  // namespace emulator::host
