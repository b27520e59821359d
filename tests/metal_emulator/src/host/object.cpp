#include "object.h"

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <new>

#include "runtime.h"

namespace emulator::host {
namespace {

// Stands in front of each object.
struct alignas(16) Tag {
  static constexpr uint64_t kAlive = 0x6f626a2d616c6976;
  static constexpr uint64_t kDead = 0x6f626a2d64656164;
  uint64_t state;
  const char* class_name;
};

Tag* tag_of(const void* object) { return const_cast<Tag*>(static_cast<const Tag*>(object)) - 1; }

// Freed blocks wait here in order, so that a message to a dead object still finds its tag.
void quarantine(Tag* tag) {
  constexpr size_t kKept = 1 << 14;
  static std::mutex mutex;
  static auto& waiting = *new std::deque<Tag*>;
  std::lock_guard lock(mutex);
  waiting.push_back(tag);
  if (waiting.size() <= kKept) return;
  ::operator delete(waiting.front(), std::align_val_t{alignof(Tag)});
  waiting.pop_front();
}

}  // namespace

void* Object::operator new(size_t size) {
  auto* tag = static_cast<Tag*>(::operator new(sizeof(Tag) + size, std::align_val_t{alignof(Tag)}));
  *tag = {Tag::kAlive, "object"};
  return tag + 1;
}

void Object::operator delete(void* memory) {
  tag_of(memory)->state = Tag::kDead;
  quarantine(tag_of(memory));
}

void Object::name_the_dead(const Object* object, const char* class_name) { tag_of(object)->class_name = class_name; }

void Object::require_alive(const Object* object, const char* selector) {
  const Tag* tag = tag_of(object);
  if (tag->state == Tag::kAlive) [[likely]]
    return;
  const bool dead = tag->state == Tag::kDead;
  std::fprintf(stderr, "metal emulator: -[%s %s] was sent to %p, %s\n", dead ? tag->class_name : "?", selector,
               static_cast<const void*>(object),
               dead ? "an object that has been deallocated: a release too many, or a retain that is missing"
                    : "which is no object");
  std::abort();
}

void Object::release() {
  require_alive(this, "release");
  if (--references_ == 0) delete this;
}

std::string Object::description() const { return "<" + isa().name + ">"; }

}  // namespace emulator::host
