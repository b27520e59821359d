// The host side's functions of emulator.h, and how metal-cpp finds the library's constants.

#include <dlfcn.h>

#include "emulator.h"
#include "object.h"

namespace emulator::host {
namespace {

// metal-cpp looks constants such as NSLocalizedDescriptionKey up with dlsym(RTLD_DEFAULT, ...), which does not see a
// library that came in with a Python module. This makes the emulator's symbols global, whoever loaded it.
__attribute__((constructor)) void make_symbols_global() {
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&emulator_live_objects), &self) != 0)
    dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
}

}  // namespace
}  // namespace emulator::host

const char* emulator_live_objects(void) {
  static thread_local std::string text;
  text.clear();
  for (const auto& [name, count] : emulator::host::live_objects()) text += name + "\t" + std::to_string(count) + "\n";
  return text.c_str();
}
