#include <cstdio>
#include <type_traits>

#include "classes.h"
#include "foundation.h"

namespace emulator::host {
namespace {

template <class T>
NSNumber* number_with(T value) {
  auto* number = autoreleased(new NSNumber);
  number->is_real = std::is_floating_point_v<T>;
  number->real = static_cast<double>(value);
  number->integer = static_cast<int64_t>(value);
  return number;
}

struct NumberMethods : MethodsOf<NSNumber> {
  template <class T>
  T value() const {
    return self()->is_real ? static_cast<T>(self()->real) : static_cast<T>(self()->integer);
  }
  NSString* string_value() const { return make_string(self()->description()); }
  bool is_equal_to_number(NSNumber* other) const { return self()->equals(other); }
};

}  // namespace

bool NSNumber::equals(const Object* other) const {
  const auto* number = dynamic_cast<const NSNumber*>(other);
  return number && number->real == real && number->integer == integer;
}

std::string NSNumber::description() const {
  if (!is_real) return std::to_string(integer);
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", real);
  return text;
}

void install_number() {
  define<NSNumber>()
      .class_method<&number_with<bool>>("numberWithBool:")
      .class_method<&number_with<int>>("numberWithInt:")
      .class_method<&number_with<unsigned>>("numberWithUnsignedInt:")
      .class_method<&number_with<long>>("numberWithLong:")
      .class_method<&number_with<unsigned long>>("numberWithUnsignedLong:")
      .class_method<&number_with<long long>>("numberWithLongLong:")
      .class_method<&number_with<unsigned long long>>("numberWithUnsignedLongLong:")
      .class_method<&number_with<float>>("numberWithFloat:")
      .class_method<&number_with<double>>("numberWithDouble:")
      .method<&NumberMethods::value<bool>>("boolValue")
      .method<&NumberMethods::value<int>>("intValue")
      .method<&NumberMethods::value<unsigned>>("unsignedIntValue")
      .method<&NumberMethods::value<long>>("longValue")
      .method<&NumberMethods::value<long>>("integerValue")
      .method<&NumberMethods::value<unsigned long>>("unsignedLongValue")
      .method<&NumberMethods::value<unsigned long>>("unsignedIntegerValue")
      .method<&NumberMethods::value<long long>>("longLongValue")
      .method<&NumberMethods::value<unsigned long long>>("unsignedLongLongValue")
      .method<&NumberMethods::value<float>>("floatValue")
      .method<&NumberMethods::value<double>>("doubleValue")
      .method<&NumberMethods::string_value>("stringValue")
      .method<&NumberMethods::is_equal_to_number>("isEqualToNumber:");
}

}  // namespace emulator::host
