#include "classes.h"

#include "foundation.h"
#include "geometry.h"
#include "runtime.h"

namespace emulator::host {
namespace {

// NSObject: what every object answers. The receiver may be a class object.
struct NSObject : Object {
  Object* retain_self() {
    if (!is_class()) retain();
    return this;
  }
  void release_self() {
    if (!is_class()) release();
  }
  Object* autorelease_self() { return is_class() ? this : autorelease(this); }
  UInteger retain_count() const { return references(); }
  Object* init() { return this; }
  UInteger hash() const { return reinterpret_cast<UInteger>(this); }
  bool is_equal(Object* other) const { return equals(other); }
  bool responds_to(SEL selector) const { return isa().find(selector, is_class()) != nullptr; }
  // metal-cpp asks for a signature only to learn whether there is a method.
  void* method_signature(SEL) const { return nullptr; }
  NSString* describe() const { return make_string(description()); }
};

}  // namespace

void install_object() {
  Definition root(ClassRecord::named("NSObject"));
  root.method<&NSObject::retain_self>("retain")
      .method<&NSObject::release_self>("release")
      .method<&NSObject::autorelease_self>("autorelease")
      .method<&NSObject::retain_count>("retainCount")
      .method<&NSObject::init>("init")
      .method<&NSObject::hash>("hash")
      .method<&NSObject::is_equal>("isEqual:")
      .method<&NSObject::responds_to>("respondsToSelector:")
      .method<&NSObject::method_signature>("methodSignatureForSelector:")
      .method<&NSObject::describe>("description")
      .method<&NSObject::describe>("debugDescription");
  root.class_method<&NSObject::retain_self>("retain")
      .class_method<&NSObject::release_self>("release")
      .class_method<&NSObject::autorelease_self>("autorelease")
      .class_method<&NSObject::responds_to>("respondsToSelector:");
}

void install_classes() {
  install_object();
  install_autorelease_pool();
  install_string();
  install_collections();
  install_number();
  install_error();
  install_url();
  install_process_info();

  install_device();
  install_buffer();
  install_library();
  install_compute_pipeline();
  install_binary_archive();
  install_command_queue();
  install_command_buffer();
  install_compute_encoder();
  install_blit_encoder();
  install_event();
  install_residency_set();
}

}  // namespace emulator::host
