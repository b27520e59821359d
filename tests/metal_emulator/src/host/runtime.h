#pragma once
// Classes and selectors of the emulated Objective-C runtime, and how a C++ class gets its selectors:
//
//   struct MTLFence final : Instance<MTLFence, Labelled> {
//     static constexpr const char* kName = "MTLFence";
//   };
//   void install_fence() {
//     define<MTLFence>().method<&MTLFence::label>("label").method<&MTLFence::setLabel>("setLabel:");
//   }
//
// A method is a member function whose parameters are what metal-cpp passes for that selector: pointers to
// emulated objects, integers, doubles, and structures by value in Metal's layout (geometry.h). Nothing
// checks them against metal-cpp's declaration; tests call each modelled selector through Apple's headers.
//
// A selector that no class record holds aborts by name: the emulator models what the project uses, and says
// what it does not. A selector or a class may be bound to a macOS version; on an older emulated system it is
// not there (respondsToSelector: is false, a class is nil), as on a Mac.

#include <objc/runtime.h>

#include <compare>
#include <string>
#include <unordered_map>

#include "call_timer.h"
#include "object.h"

namespace emulator::host {

/// A version of macOS. {0, 0}: always there.
struct SystemVersion {
  int major = 0;
  int minor = 0;
  auto operator<=>(const SystemVersion&) const = default;
};

/// Whether the emulated Mac runs at least this macOS.
bool system_is_at_least(SystemVersion version);

using Implementation = void (*)();

struct Method {
  Implementation implementation = nullptr;
  SystemVersion since;
};

/// One class: its name, its superclass and its methods, and the object that stands for the class itself.
class ClassRecord {
 public:
  std::string name;
  ClassRecord* superclass = nullptr;
  SystemVersion since;
  std::unordered_map<SEL, Method> instance_methods;
  std::unordered_map<SEL, Method> class_methods;
  std::atomic<long> live{0};
  Object* class_object = nullptr;

  /// The record of that name, made on first use; one that is not defined answers no selector.
  static ClassRecord& named(const char* name);

  /// The method for a message to an instance (or to the class itself), or null.
  const Method* find(SEL selector, bool of_class) const;
};

/// A C++ function with the calling convention of an Objective-C method: receiver, selector, arguments.
template <auto Function>
struct Adapter;

template <class R, class T, class... Args, R (T::*Function)(Args...)>
struct Adapter<Function> {
  static R call(T* self, SEL, Args... args) {
    const InMethod timer;
    return (self->*Function)(args...);
  }
};
template <class R, class T, class... Args, R (T::*Function)(Args...) const>
struct Adapter<Function> {
  static R call(const T* self, SEL, Args... args) {
    const InMethod timer;
    return (self->*Function)(args...);
  }
};
template <class R, class... Args, R (*Function)(Args...)>
struct Adapter<Function> {
  static R call(Object*, SEL, Args... args) { return Function(args...); }
};

/// Fills a class record; returned by define<T>().
class Definition {
 public:
  explicit Definition(ClassRecord& record) : record_(record) {}

  template <auto Function>
  Definition& method(const char* selector, SystemVersion since = {}) {
    record_.instance_methods[sel_registerName(selector)] = implementation<Function>(since);
    return *this;
  }
  template <auto Function>
  Definition& class_method(const char* selector, SystemVersion since = {}) {
    record_.class_methods[sel_registerName(selector)] = implementation<Function>(since);
    return *this;
  }
  Definition& since(SystemVersion version) {
    record_.since = version;
    return *this;
  }

 private:
  template <auto Function>
  static Method implementation(SystemVersion since) {
    return {reinterpret_cast<Implementation>(&Adapter<Function>::call), since};
  }
  ClassRecord& record_;
};

template <class T>
Definition define() {
  ClassRecord& record = ClassRecord::named(T::kName);
  record.superclass = &ClassRecord::named("NSObject");
  return Definition(record);
}

/// What every concrete class derives from. `Base` adds shared state (Labelled).
template <class T, class Base = Object>
class Instance : public Base {
 public:
  Instance() { ++record().live; }
  ~Instance() override {
    --record().live;
    this->name_the_dead(this, T::kName);
  }
  ClassRecord& isa() const final { return record(); }

  /// `+alloc` of classes that a program makes itself.
  static T* alloc() { return new T; }

 private:
  static ClassRecord& record() {
    static ClassRecord& own = ClassRecord::named(T::kName);
    return own;
  }
};

/// A place for the selectors of T that its header need not show: members are called with a T as `this`.
/// Adds neither data nor virtual functions.
template <class T>
struct MethodsOf : Object {
  T* self() const { return static_cast<T*>(const_cast<Object*>(static_cast<const Object*>(this))); }
};

/// Takes an object that is never released out of the census of live ones.
template <class T>
T* immortal(T* object) {
  --object->isa().live;
  return object;
}

/// Registers all modelled classes once; called by whatever may come first.
void ensure_classes();

}  // namespace emulator::host
