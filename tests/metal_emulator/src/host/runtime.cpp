#include "runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>

#include "classes.h"
#include "kernel/settings.h"

namespace emulator::host {
namespace {

std::mutex& table_mutex() {
  static std::mutex mutex;
  return mutex;
}

// Never destroyed: objects may be released while the program's statics go.
std::map<std::string, std::unique_ptr<ClassRecord>>& class_table() {
  static auto& table = *new std::map<std::string, std::unique_ptr<ClassRecord>>;
  return table;
}

/// The receiver of class messages.
class ClassObject final : public Object {
 public:
  explicit ClassObject(ClassRecord& record) : record_(record) {}
  ClassRecord& isa() const override { return record_; }
  bool is_class() const override { return true; }

 private:
  ClassRecord& record_;
};

const Method* available(const std::unordered_map<SEL, Method>& methods, SEL selector) {
  const auto found = methods.find(selector);
  return found != methods.end() && system_is_at_least(found->second.since) ? &found->second : nullptr;
}

std::string missing_method(const ClassRecord& record, SEL selector, bool of_class) {
  std::string text = std::string(of_class ? "+[" : "-[") + record.name + " " + sel_getName(selector) + "]";
  for (const ClassRecord* r = &record; r; r = r->superclass) {
    const auto& methods = of_class ? r->class_methods : r->instance_methods;
    const auto found = methods.find(selector);
    if (found == methods.end()) continue;
    const SystemVersion since = found->second.since;
    return text + " needs macOS " + std::to_string(since.major) + "." + std::to_string(since.minor) +
           ", which is newer than the emulated system; ask respondsToSelector: or the OS version first";
  }
  return text + " is not modelled by the emulator";
}

// A message to nil, or to a class that the emulated system does not have, answers zero.
void* answer_nil() { return nullptr; }

/// The last methods that this thread found; a hit spares the hash tables.
struct CachedMethod {
  const ClassRecord* record;
  SEL selector;
  bool of_class;
  const Method* method;
};
constexpr size_t kCachedMethods = 256;

// On the heap: the library's thread-local memory must stay small, or a Python module cannot load it.
CachedMethod& cached_method(size_t hash) {
  static thread_local CachedMethod* cache = nullptr;
  if (!cache) cache = new CachedMethod[kCachedMethods]();  // stays: what dies with a thread may send messages
  return cache[hash % kCachedMethods];
}

}  // namespace

bool system_is_at_least(SystemVersion version) {
  return version.major == 0 || SystemVersion{settings().os_major, settings().os_minor} >= version;
}

ClassRecord& ClassRecord::named(const char* name) {
  std::lock_guard lock(table_mutex());
  auto& entry = class_table()[name];
  if (!entry) {
    entry = std::make_unique<ClassRecord>();
    entry->name = name;
    entry->class_object = new ClassObject(*entry);
  }
  return *entry;
}

const Method* ClassRecord::find(SEL selector, bool of_class) const {
  for (const ClassRecord* record = this; record; record = record->superclass) {
    const Method* method = available(of_class ? record->class_methods : record->instance_methods, selector);
    if (method) return method;
  }
  return nullptr;
}

std::vector<std::pair<std::string, long>> live_objects() {
  std::lock_guard lock(table_mutex());
  std::vector<std::pair<std::string, long>> counts;
  for (const auto& [name, record] : class_table()) {
    if (record->live > 0) counts.emplace_back(name, record->live.load());
  }
  return counts;
}

void ensure_classes() {
  static std::once_flag once;
  std::call_once(once, install_classes);
}

/// What objc_msgSend jumps to (message_send.cpp). Aborts where there is no such method.
extern "C" __attribute__((used, visibility("hidden"))) Implementation emulator_find_method(Object* self, SEL selector) {
  Object::require_alive(self, sel_getName(selector));
  const ClassRecord& record = self->isa();
  const bool of_class = self->is_class();
  const size_t hash = (reinterpret_cast<uintptr_t>(&record) >> 6) ^ (reinterpret_cast<uintptr_t>(selector) >> 4);
  CachedMethod& cached = cached_method(hash);
  if (cached.record == &record && cached.selector == selector && cached.of_class == of_class &&
      system_is_at_least(cached.method->since) && (!of_class || system_is_at_least(record.since))) {
    return cached.method->implementation;
  }
  if (of_class && !system_is_at_least(record.since)) return reinterpret_cast<Implementation>(&answer_nil);
  const Method* method = record.find(selector, of_class);
  if (!method) {
    std::fprintf(stderr, "metal emulator: %s\n", missing_method(record, selector, of_class).c_str());
    std::abort();
  }
  cached = {&record, selector, of_class, method};
  return method->implementation;
}

}  // namespace emulator::host

using emulator::host::ClassRecord;
using emulator::host::Object;

extern "C" {

SEL sel_registerName(const char* name) {
  static std::mutex mutex;
  static auto& names = *new std::set<std::string>;
  std::lock_guard lock(mutex);
  return reinterpret_cast<SEL>(const_cast<char*>(names.insert(name).first->c_str()));
}

const char* sel_getName(SEL selector) { return reinterpret_cast<const char*>(selector); }

// Unknown names get a class as well: metal-cpp looks all of Metal's classes up at start, and one that is
// never used must do no harm. Its first use aborts by name.
void* objc_lookUpClass(const char* name) {
  emulator::host::ensure_classes();
  return ClassRecord::named(name).class_object;
}

void* objc_getClass(const char* name) { return objc_lookUpClass(name); }

void* objc_getProtocol(const char*) { return nullptr; }

void* object_getClass(id object) { return reinterpret_cast<Object*>(object)->isa().class_object; }

const char* object_getClassName(id object) { return reinterpret_cast<Object*>(object)->isa().name.c_str(); }

}  // extern "C"
