#pragma once
// The root of every emulated Objective-C object: a reference count, a class record, and the means to tell a
// live object from a dead one.
//
// metal-cpp sees an object as an opaque pointer and reaches it through objc_msgSend alone, so the layout is
// ours: an Object is a C++ class with virtual functions. A concrete class derives from Instance<T>, names
// itself in T::kName and is registered with its selectors (runtime.h). Single inheritance only: the address
// that metal-cpp holds must be that of the Object.
//
// Memory of a dead object is kept for a while, so that a message to it (a use after the last release, a
// release too many) is named instead of corrupting memory. The number of live objects of each class is
// counted: live_objects() finds what was never released.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace emulator::host {

class ClassRecord;

class Object {
 public:
  Object() = default;
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  virtual ClassRecord& isa() const = 0;
  /// A class object (the receiver of alloc) looks its methods up among the class methods.
  virtual bool is_class() const { return false; }
  virtual bool equals(const Object* other) const { return this == other; }
  virtual std::string description() const;

  void retain() { ++references_; }
  /// Destroys the object with the last reference. Aborts by name when the object is already dead.
  void release();
  size_t references() const { return static_cast<size_t>(references_.load()); }

  /// Aborts unless `object` is a live Object; `selector` is what was about to be sent to it.
  static void require_alive(const Object* object, const char* selector);

  static void* operator new(size_t size);
  static void operator delete(void* memory);

 protected:
  /// Remembered for the message about a use after the end.
  static void name_the_dead(const Object* object, const char* class_name);

 private:
  std::atomic<long> references_{1};
};

/// Puts the object into the thread's innermost pool (autorelease.cpp) and returns it.
Object* autorelease(Object* object);

/// A pool around what the emulator itself calls on its threads.
class AutoreleaseScope {
 public:
  AutoreleaseScope();
  ~AutoreleaseScope();
  AutoreleaseScope(const AutoreleaseScope&) = delete;
  AutoreleaseScope& operator=(const AutoreleaseScope&) = delete;

 private:
  Object* pool_;
};

template <class T>
T* autoreleased(T* object) {
  autorelease(object);
  return object;
}

/// An owning reference to an emulated object, for members.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) {
    if (object_) object_->retain();
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_) object_->release();
  }
  /// Takes over the reference that a new object is born with.
  static Ref adopt(T* object) {
    Ref ref;
    ref.object_ = object;
    return ref;
  }
  T* get() const { return object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
};

/// Live objects by class name, sorted; classes without any are left out.
std::vector<std::pair<std::string, long>> live_objects();

}  // namespace emulator::host
