#pragma once
// Apple's metal-cpp, without its own warnings.

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Weverything"
#include <Foundation/Foundation.hpp>
#include <Metal/Metal.hpp>
#pragma clang diagnostic pop

#include <string>

namespace saragossa::metal {

inline NS::String* ns_string(const std::string& text) {
  return NS::String::string(text.c_str(), NS::UTF8StringEncoding);  // autoreleased
}

/// What an NSError says; "no reason given" where there is none.
inline std::string text_of(NS::Error* error) {
  if (!error || !error->localizedDescription()) return "no reason given";
  return error->localizedDescription()->utf8String();
}

/// Objects that Metal returns autoreleased die with the pool: every entry point opens one.
class Pool {
 public:
  Pool() : pool_(NS::AutoreleasePool::alloc()->init()) {}
  ~Pool() { pool_->release(); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

 private:
  NS::AutoreleasePool* pool_;
};

}  // namespace saragossa::metal
