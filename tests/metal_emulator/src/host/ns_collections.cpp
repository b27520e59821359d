#include "classes.h"
#include "foundation.h"
#include "kernel/report.h"

namespace emulator::host {
namespace {

NSArray* array() { return autoreleased(new NSArray); }

NSArray* array_with_object(Object* object) {
  NSArray* result = array();
  result->objects.emplace_back(object);
  return result;
}

NSArray* array_with_objects(Object* const objects[], UInteger count) {
  NSArray* result = array();
  for (UInteger i = 0; i < count; ++i) result->objects.emplace_back(objects[i]);
  return result;
}

struct ArrayMethods : MethodsOf<NSArray> {
  NSArray* init_with_objects(Object* const objects[], UInteger count) {
    for (UInteger i = 0; i < count; ++i) self()->objects.emplace_back(objects[i]);
    return self();
  }
};

NSDictionary* dictionary() { return autoreleased(new NSDictionary); }

NSDictionary* dictionary_with_object(Object* object, Object* key) {
  NSDictionary* result = dictionary();
  result->entries.emplace_back(Ref(key), Ref(object));
  return result;
}

NSDictionary* dictionary_with_objects(Object* const objects[], Object* const keys[], UInteger count) {
  NSDictionary* result = dictionary();
  for (UInteger i = 0; i < count; ++i) result->entries.emplace_back(Ref(keys[i]), Ref(objects[i]));
  return result;
}

struct DictionaryMethods : MethodsOf<NSDictionary> {
  NSDictionary* init_with_objects(Object* const objects[], Object* const keys[], UInteger count) {
    for (UInteger i = 0; i < count; ++i) self()->entries.emplace_back(Ref(keys[i]), Ref(objects[i]));
    return self();
  }
};

struct NSEnumerator final : Instance<NSEnumerator> {
  static constexpr const char* kName = "NSEnumerator";
  std::vector<Ref<Object>> objects;
  size_t next = 0;

  Object* nextObject() { return next < objects.size() ? objects[next++].get() : nullptr; }
  NSArray* allObjects() {
    auto* rest = autoreleased(new NSArray);
    rest->objects.assign(objects.begin() + static_cast<std::ptrdiff_t>(next), objects.end());
    next = objects.size();
    return rest;
  }
};

}  // namespace

Object* NSArray::objectAtIndex(UInteger index) const {
  if (index < objects.size()) return objects[index].get();
  report("api", "-[NSArray objectAtIndex:]: index " + std::to_string(index) + " of " + std::to_string(objects.size()) +
                    " objects raises on a Mac");
  return nullptr;
}

std::string NSArray::description() const {
  std::string text = "(";
  for (const auto& object : objects) text += (text.size() > 1 ? ", " : "") + object->description();
  return text + ")";
}

Object* NSDictionary::objectForKey(const Object* key) const {
  for (const auto& [own, value] : entries) {
    if (own->equals(key)) return value.get();
  }
  return nullptr;
}

Object* NSDictionary::keyEnumerator() const {
  auto* keys = autoreleased(new NSEnumerator);
  for (const auto& entry : entries) keys->objects.push_back(entry.first);
  return keys;
}

std::map<std::string, std::string> NSDictionary::to_text() const {
  std::map<std::string, std::string> text;
  for (const auto& [key, value] : entries) text[key->description()] = value->description();
  return text;
}

void install_collections() {
  define<NSArray>()
      .class_method<&NSArray::alloc>("alloc")
      .class_method<&array>("array")
      .class_method<&array_with_object>("arrayWithObject:")
      .class_method<&array_with_objects>("arrayWithObjects:count:")
      .method<&ArrayMethods::init_with_objects>("initWithObjects:count:")
      .method<&NSArray::count>("count")
      .method<&NSArray::objectAtIndex>("objectAtIndex:");
  define<NSDictionary>()
      .class_method<&NSDictionary::alloc>("alloc")
      .class_method<&dictionary>("dictionary")
      .class_method<&dictionary_with_object>("dictionaryWithObject:forKey:")
      .class_method<&dictionary_with_objects>("dictionaryWithObjects:forKeys:count:")
      .method<&DictionaryMethods::init_with_objects>("initWithObjects:forKeys:count:")
      .method<&NSDictionary::count>("count")
      .method<&NSDictionary::objectForKey>("objectForKey:")
      .method<&NSDictionary::keyEnumerator>("keyEnumerator");
  define<NSEnumerator>()
      .method<&NSEnumerator::nextObject>("nextObject")
      .method<&NSEnumerator::allObjects>("allObjects");
}

}  // namespace emulator::host
