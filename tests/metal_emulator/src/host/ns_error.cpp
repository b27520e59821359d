#include "classes.h"
#include "foundation.h"

namespace emulator::host {
namespace {

// The names by which metal-cpp finds keys and domains (dlsym of these symbols): never released.
NSString* constant(const char* text) { return immortal(new NSString(text)); }

constexpr const char* kDescriptionKey = "NSLocalizedDescription";

struct ErrorMethods : MethodsOf<NSError> {
  NSError* init_with_domain(NSString* domain, Integer code, NSDictionary* user_info) {
    self()->domain_name = domain->text;
    self()->error_code = code;
    self()->user_info = Ref(user_info);
    return self();
  }
  NSString* domain() const { return make_string(self()->domain_name); }
  Integer code() const { return self()->error_code; }
  NSDictionary* user_info() const { return self()->user_info.get(); }
  NSString* absent() const { return nullptr; }
};

NSError* error_with_domain(NSString* domain, Integer code, NSDictionary* user_info) {
  auto* error = autoreleased(new NSError);
  error->domain_name = domain->text;
  error->error_code = code;
  error->user_info = Ref(user_info);
  return error;
}

}  // namespace

NSString* NSError::localizedDescription() const {
  if (user_info) {
    const auto key = Ref<NSString>::adopt(new NSString(kDescriptionKey));
    if (Object* text = user_info->objectForKey(key.get())) return make_string(text->description());
  }
  return make_string("The operation couldn't be completed. (" + domain_name + " error " + std::to_string(error_code) +
                     ".)");
}

std::string NSError::description() const {
  return "Error Domain=" + domain_name + " Code=" + std::to_string(error_code) + " \"" + localizedDescription()->text +
         "\"";
}

NSError* make_error(const std::string& domain, Integer code, const std::string& description) {
  auto info = Ref<NSDictionary>::adopt(new NSDictionary);
  info->entries.emplace_back(Ref<Object>::adopt(new NSString(kDescriptionKey)),
                             Ref<Object>::adopt(new NSString(description)));
  auto* error = autoreleased(new NSError);
  error->domain_name = domain;
  error->error_code = code;
  error->user_info = info;
  return error;
}

void install_error() {
  define<NSError>()
      .class_method<&NSError::alloc>("alloc")
      .class_method<&error_with_domain>("errorWithDomain:code:userInfo:")
      .method<&ErrorMethods::init_with_domain>("initWithDomain:code:userInfo:")
      .method<&ErrorMethods::domain>("domain")
      .method<&ErrorMethods::code>("code")
      .method<&ErrorMethods::user_info>("userInfo")
      .method<&NSError::localizedDescription>("localizedDescription")
      .method<&ErrorMethods::absent>("localizedFailureReason")
      .method<&ErrorMethods::absent>("localizedRecoverySuggestion");
}

}  // namespace emulator::host

extern "C" {
emulator::host::Object* NSLocalizedDescriptionKey = emulator::host::constant(emulator::host::kDescriptionKey);
emulator::host::Object* NSCocoaErrorDomain = emulator::host::constant("NSCocoaErrorDomain");
emulator::host::Object* NSPOSIXErrorDomain = emulator::host::constant("NSPOSIXErrorDomain");
emulator::host::Object* MTLBinaryArchiveDomain = emulator::host::constant("MTLBinaryArchiveDomain");
}
