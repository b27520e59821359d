#include "classes.h"
#include "foundation.h"

namespace emulator::host {
namespace {

NSURL* file_url(NSString* path) {
  auto* url = autoreleased(new NSURL);
  url->path = path->text;
  return url;
}

struct UrlMethods : MethodsOf<NSURL> {
  NSURL* init_file_url(NSString* path) {
    self()->path = path->text;
    return self();
  }
};

}  // namespace

void install_url() {
  define<NSURL>()
      .class_method<&NSURL::alloc>("alloc")
      .class_method<&file_url>("fileURLWithPath:")
      .method<&UrlMethods::init_file_url>("initFileURLWithPath:")
      .method<&NSURL::fileSystemRepresentation>("fileSystemRepresentation");
}

}  // namespace emulator::host
