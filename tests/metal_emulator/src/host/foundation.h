#pragma once
// The Foundation classes that metal-cpp hands to and fro.

#include <map>
#include <string>
#include <vector>

#include "geometry.h"
#include "runtime.h"

namespace emulator::host {

struct NSString final : Instance<NSString> {
  static constexpr const char* kName = "NSString";
  std::string text;  // UTF-8

  explicit NSString(std::string utf8 = {}) : text(std::move(utf8)) {}
  bool equals(const Object* other) const override;
  std::string description() const override { return text; }
};

/// Autoreleased.
NSString* make_string(std::string utf8);

struct NSNumber final : Instance<NSNumber> {
  static constexpr const char* kName = "NSNumber";
  double real = 0;
  int64_t integer = 0;
  bool is_real = false;
  bool equals(const Object* other) const override;
  std::string description() const override;
};

struct NSArray final : Instance<NSArray> {
  static constexpr const char* kName = "NSArray";
  std::vector<Ref<Object>> objects;

  UInteger count() const { return objects.size(); }
  Object* objectAtIndex(UInteger index) const;
  std::string description() const override;
};

template <class T>
NSArray* make_array(const std::vector<T*>& objects) {
  auto* array = autoreleased(new NSArray);
  for (T* object : objects) array->objects.emplace_back(object);
  return array;
}

struct NSDictionary final : Instance<NSDictionary> {
  static constexpr const char* kName = "NSDictionary";
  std::vector<std::pair<Ref<Object>, Ref<Object>>> entries;  // key, value

  UInteger count() const { return entries.size(); }
  Object* objectForKey(const Object* key) const;
  Object* keyEnumerator() const;
  /// Keys and values as text; for preprocessor macros.
  std::map<std::string, std::string> to_text() const;
};

struct NSError final : Instance<NSError> {
  static constexpr const char* kName = "NSError";
  std::string domain_name;
  Integer error_code = 0;
  Ref<NSDictionary> user_info;

  NSString* localizedDescription() const;
  std::string description() const override;
};

/// Autoreleased; what Metal's methods put into their NSError** argument.
NSError* make_error(const std::string& domain, Integer code, const std::string& description);

/// Fills the out argument of a failing method; the program may pass null.
inline void set_error(NSError** out, const std::string& domain, Integer code, const std::string& description) {
  if (out) *out = make_error(domain, code, description);
}

/// Only file URLs.
struct NSURL final : Instance<NSURL> {
  static constexpr const char* kName = "NSURL";
  std::string path;

  const char* fileSystemRepresentation() const { return path.c_str(); }
};

}  // namespace emulator::host
