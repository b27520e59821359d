#include "block.h"

#include <cstdlib>
#include <cstring>

#include "object.h"

// The ABI is clang's "Block Implementation Specification".
namespace {

enum Flags : int {
  kReferenceMask = 0xfffe,  // counted in steps of two
  kNeedsFree = 1 << 24,
  kHasCopyDispose = 1 << 25,
  kIsGlobal = 1 << 28,
};

struct Descriptor {
  unsigned long reserved;
  unsigned long size;
  void (*copy)(void* to, const void* from);
  void (*dispose)(const void* block);
};

struct Literal {
  void* isa;
  int flags;
  int reserved;
  void* invoke;
  Descriptor* descriptor;
};

/// A __block variable; reached through `forwarding`, which changes when it moves to the heap.
struct ByRef {
  void* isa;
  ByRef* forwarding;
  int flags;
  unsigned size;
  void (*keep)(ByRef* to, ByRef* from);
  void (*destroy)(ByRef* variable);
};

enum Field { kFieldIsObject = 3, kFieldIsBlock = 7, kFieldIsByRef = 8 };
constexpr int kFieldMask = 0xf;

void add_reference(int& flags) { __atomic_fetch_add(&flags, 2, __ATOMIC_SEQ_CST); }
bool drop_reference(int& flags) { return (__atomic_sub_fetch(&flags, 2, __ATOMIC_SEQ_CST) & kReferenceMask) == 0; }

ByRef* copy_by_ref(ByRef* variable) {
  ByRef* source = variable->forwarding;
  if (source->flags & kNeedsFree) {  // on the heap already
    add_reference(source->flags);
    return source;
  }
  auto* copy = static_cast<ByRef*>(std::malloc(source->size));
  std::memcpy(static_cast<void*>(copy), source, source->size);
  copy->isa = nullptr;
  copy->flags = (source->flags & ~kReferenceMask) | kNeedsFree | 4;  // one for this block, one for the stack's
  copy->forwarding = copy;
  source->forwarding = copy;
  if (source->flags & kHasCopyDispose) copy->keep(copy, source);
  return copy;
}

void release_by_ref(ByRef* variable) {
  variable = variable->forwarding;
  if (!(variable->flags & kNeedsFree) || !drop_reference(variable->flags)) return;
  if (variable->flags & kHasCopyDispose) variable->destroy(variable);
  std::free(variable);
}

}  // namespace

extern "C" {

void* _NSConcreteStackBlock[32];
void* _NSConcreteGlobalBlock[32];
void* _NSConcreteMallocBlock[32];

void* _Block_copy(const void* block) {
  auto* literal = static_cast<Literal*>(const_cast<void*>(block));
  if (!literal || (literal->flags & kIsGlobal)) return literal;
  if (literal->flags & kNeedsFree) {
    add_reference(literal->flags);
    return literal;
  }
  auto* copy = static_cast<Literal*>(std::malloc(literal->descriptor->size));
  std::memcpy(copy, literal, literal->descriptor->size);
  copy->isa = _NSConcreteMallocBlock;
  copy->flags = (literal->flags & ~kReferenceMask) | kNeedsFree | 2;
  if (copy->flags & kHasCopyDispose) copy->descriptor->copy(copy, literal);
  return copy;
}

void _Block_release(const void* block) {
  auto* literal = static_cast<Literal*>(const_cast<void*>(block));
  if (!literal || (literal->flags & kIsGlobal) || !(literal->flags & kNeedsFree)) return;
  if (!drop_reference(literal->flags)) return;
  if (literal->flags & kHasCopyDispose) literal->descriptor->dispose(literal);
  std::free(literal);
}

// clang calls this for each captured variable that is more than bytes.
void _Block_object_assign(void* destination, const void* object, int flags) {
  void* value = const_cast<void*>(object);
  switch (flags & kFieldMask) {
    case kFieldIsByRef: value = copy_by_ref(static_cast<ByRef*>(value)); break;
    case kFieldIsBlock: value = _Block_copy(object); break;
    case kFieldIsObject: static_cast<emulator::host::Object*>(value)->retain(); break;
    default: break;
  }
  std::memcpy(destination, &value, sizeof value);
}

void _Block_object_dispose(const void* object, int flags) {
  void* value = const_cast<void*>(object);
  switch (flags & kFieldMask) {
    case kFieldIsByRef: release_by_ref(static_cast<ByRef*>(value)); break;
    case kFieldIsBlock: _Block_release(object); break;
    case kFieldIsObject: static_cast<emulator::host::Object*>(value)->release(); break;
    default: break;
  }
}

}  // extern "C"
