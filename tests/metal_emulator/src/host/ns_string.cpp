#include <strings.h>

#include <cstdlib>
#include <cstring>
#include <optional>

#include "classes.h"
#include "foundation.h"
#include "kernel/report.h"

namespace emulator::host {
namespace {

constexpr UInteger kAscii = 1;
constexpr UInteger kUtf8 = 4;
constexpr UInteger kNotFound = 0x7fffffffffffffff;

/// The code points of UTF-8 text, or nothing where it is malformed.
std::optional<std::u32string> decode(const std::string& text) {
  std::u32string points;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t extra = lead < 0x80 ? 0 : lead >= 0xf0 && lead < 0xf8 ? 3 : lead >= 0xe0 && lead < 0xf0 ? 2 : 1;
    if ((lead >= 0x80 && lead < 0xc2) || lead >= 0xf8 || i + extra >= text.size()) return std::nullopt;
    char32_t point = extra == 0 ? lead : lead & (0x3fu >> extra);
    for (size_t k = 1; k <= extra; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0) != 0x80) return std::nullopt;
      point = (point << 6) | (next & 0x3fu);
    }
    points.push_back(point);
    i += extra + 1;
  }
  return points;
}

/// NSString counts in units of UTF-16.
std::u16string to_utf16(const std::string& text) {
  std::u16string units;
  for (char32_t point : decode(text).value_or(U"")) {
    if (point >= 0x10000) {
      units.push_back(static_cast<char16_t>(0xd800 + ((point - 0x10000) >> 10)));
      units.push_back(static_cast<char16_t>(0xdc00 + ((point - 0x10000) & 0x3ff)));
    } else {
      units.push_back(static_cast<char16_t>(point));
    }
  }
  return units;
}

/// Whether the bytes are text of that encoding; another encoding than the two modelled ones is reported.
bool readable(const std::string& bytes, UInteger encoding) {
  if (encoding != kUtf8 && encoding != kAscii) {
    report("api", "NSString: encoding " + std::to_string(encoding) + " is not modelled; use NS::UTF8StringEncoding");
    return false;
  }
  return decode(bytes).has_value();
}

// The selectors; static ones are class methods.
NSString* string() { return make_string({}); }
NSString* string_with_string(NSString* other) { return make_string(other->text); }

NSString* string_with_c_string(const char* bytes, UInteger encoding) {
  if (!bytes) {
    report("api", "+[NSString stringWithCString:encoding:] with a null pointer raises on a Mac");
    return nullptr;
  }
  return readable(bytes, encoding) ? make_string(bytes) : nullptr;
}

struct StringMethods : MethodsOf<NSString> {
  const std::string& text() { return self()->text; }

  /// init... consumes the receiver where it fails.
  NSString* initialised(std::string bytes, UInteger encoding) {
    if (!readable(bytes, encoding)) {
      release();
      return nullptr;
    }
    self()->text = std::move(bytes);
    return self();
  }
  NSString* init_with_string(NSString* other) { return initialised(other->text, kUtf8); }
  NSString* init_with_c_string(const char* bytes, UInteger encoding) { return initialised(bytes, encoding); }
  NSString* init_with_bytes(char* bytes, UInteger length, UInteger encoding, bool free_when_done) {
    std::string copy(bytes, length);
    if (free_when_done) std::free(bytes);
    return initialised(std::move(copy), encoding);
  }
  NSString* copy() {
    retain();
    return self();
  }
  const char* utf8() { return text().c_str(); }
  const char* c_string(UInteger encoding) { return readable(text(), encoding) ? text().c_str() : nullptr; }
  const char* file_system_representation() { return text().c_str(); }
  UInteger length() { return to_utf16(text()).size(); }
  UInteger byte_length(UInteger encoding) { return readable(text(), encoding) ? text().size() : 0; }
  UInteger maximum_byte_length(UInteger encoding) { return length() * (encoding == kUtf8 ? 3 : 1); }
  char16_t character_at(UInteger index) { return to_utf16(text()).at(index); }
  bool is_equal_to_string(NSString* other) { return other && other->text == text(); }
  Integer case_insensitive_compare(NSString* other) {
    const int order = strcasecmp(text().c_str(), other->text.c_str());
    return (order > 0) - (order < 0);
  }
  NSString* appending(NSString* other) { return make_string(text() + other->text); }
  Range range_of(NSString* other, UInteger options) {
    if (options != 0) report("api", "-[NSString rangeOfString:options:] is modelled without options");
    const size_t at = to_utf16(text()).find(to_utf16(other->text));
    if (at == std::u16string::npos || other->text.empty()) return {kNotFound, 0};
    return {at, to_utf16(other->text).size()};
  }
};

}  // namespace

bool NSString::equals(const Object* other) const {
  const auto* string = dynamic_cast<const NSString*>(other);
  return string && string->text == text;
}

NSString* make_string(std::string utf8) { return autoreleased(new NSString(std::move(utf8))); }

void install_string() {
  define<NSString>()
      .class_method<&NSString::alloc>("alloc")
      .class_method<&string>("string")
      .class_method<&string_with_string>("stringWithString:")
      .class_method<&string_with_c_string>("stringWithCString:encoding:")
      .method<&StringMethods::init_with_string>("initWithString:")
      .method<&StringMethods::init_with_c_string>("initWithCString:encoding:")
      .method<&StringMethods::init_with_bytes>("initWithBytesNoCopy:length:encoding:freeWhenDone:")
      .method<&StringMethods::copy>("copy")
      .method<&StringMethods::utf8>("UTF8String")
      .method<&StringMethods::c_string>("cStringUsingEncoding:")
      .method<&StringMethods::file_system_representation>("fileSystemRepresentation")
      .method<&StringMethods::length>("length")
      .method<&StringMethods::byte_length>("lengthOfBytesUsingEncoding:")
      .method<&StringMethods::maximum_byte_length>("maximumLengthOfBytesUsingEncoding:")
      .method<&StringMethods::character_at>("characterAtIndex:")
      .method<&StringMethods::is_equal_to_string>("isEqualToString:")
      .method<&StringMethods::case_insensitive_compare>("caseInsensitiveCompare:")
      .method<&StringMethods::appending>("stringByAppendingString:")
      .method<&StringMethods::range_of>("rangeOfString:options:");
}

}  // namespace emulator::host
