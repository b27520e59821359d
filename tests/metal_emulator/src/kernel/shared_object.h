#pragma once
// A compiled kernel library in memory. Each set of function constants has its own copy, since they are variables of it.

#include <cstdint>
#include <memory>
#include <string>

#include "compile.h"
#include "msl/emulator/abi.h"

namespace emulator {

class LoadedObject {
 public:
  /// nullptr and a message where it cannot be loaded.
  static std::shared_ptr<LoadedObject> load(const std::string& path, const ConstantValues& constants,
                                            std::string& error);
  /// Unmaps it: a process may have only so many mappings.
  ~LoadedObject();
  LoadedObject(const LoadedObject&) = delete;
  LoadedObject& operator=(const LoadedObject&) = delete;

  const EmulatorLibrary& library() const { return *library_; }
  const EmulatorKernel* find(const std::string& name) const;

 private:
  explicit LoadedObject(void* handle) : handle_(handle) {}
  void* handle_;
  uintptr_t begin_ = 0;  // of its range; 0: none yet
  const EmulatorLibrary* library_ = nullptr;
};

/// Whether an address lies in a loaded kernel library (its code and constants).
bool in_kernel_library(uintptr_t address);

/// "matvec.metal:31" for an address of code in a kernel library; "?" where it is not known.
std::string source_line(uintptr_t code);

}  // namespace emulator
