// Drives the kernel side alone, for pytest through ctypes: compile a source, make buffers, run dispatches.
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernel/compile.h"
#include "kernel/execute.h"
#include "kernel/memory.h"

namespace {

std::string last_error;
std::vector<std::shared_ptr<emulator::Library>> libraries;
std::vector<std::shared_ptr<const emulator::Kernel>> kernels;
std::vector<emulator::Dispatch> pending;
emulator::Dispatch next;
uint64_t sequence = 0;
uint32_t barrier_group = 1;

}  // namespace

extern "C" {

const char* runner_error() { return last_error.c_str(); }

/// A number for the library, or -1 and an error. `macros`: name=value lines. The log is the error's text, too.
int runner_compile(const char* source, const char* name, const char* macros, int math_mode, int version) {
  emulator::CompileRequest request;
  request.source = source;
  request.name = name;
  request.math_mode = static_cast<emulator::MathMode>(math_mode);
  request.language_version = version;
  std::string lines = macros;
  for (size_t end; (end = lines.find('\n')) != std::string::npos; lines.erase(0, end + 1)) {
    const size_t equals = lines.find('=');
    request.macros[lines.substr(0, equals)] = lines.substr(equals + 1, end - equals - 1);
  }
  emulator::CompileResult result = emulator::compile(request);
  last_error = result.log;
  if (!result.library) return -1;
  libraries.push_back(result.library);
  return static_cast<int>(libraries.size()) - 1;
}

/// `constants`: count times index, size, bytes.
int runner_kernel(int library, const char* name, const uint32_t* indices, const uint32_t* sizes, const uint8_t* bytes,
                  int count) {
  emulator::ConstantValues values;
  for (int i = 0; i < count; i++) {
    values[indices[i]].assign(bytes, bytes + sizes[i]);
    bytes += sizes[i];
  }
  auto kernel = libraries[static_cast<size_t>(library)]->kernel(name, values, last_error);
  if (!kernel) return -1;
  kernels.push_back(kernel);
  return static_cast<int>(kernels.size()) - 1;
}

const char* runner_kernel_names(int library) {
  static std::string names;
  names.clear();
  for (const std::string& n : libraries[static_cast<size_t>(library)]->kernel_names()) names += n + "\n";
  return names.c_str();
}

uint32_t runner_allocate(uint64_t length, const char* label, int tracked) {
  emulator::BufferId id = 0;
  if (!emulator::allocate(length, tracked != 0, id)) return 0;
  emulator::set_label(id, label);
  return id;
}
uint8_t* runner_contents(uint32_t id) { return emulator::buffer_info(id).base; }
void runner_free(uint32_t id) { emulator::free_buffer(id); }

// A dispatch is put together, then encoded; run() runs what was encoded since the last barrier.
void runner_begin(int kernel, const char* label) {
  next = {};
  next.kernel = kernels[static_cast<size_t>(kernel)];
  next.label = label;
}
void runner_bind(int index, uint32_t id, uint64_t offset) {
  const emulator::BufferInfo info = emulator::buffer_info(id);
  next.buffers[static_cast<size_t>(index)] = {info.base + offset, info.length - offset, id};
}
void runner_bytes(int index, const void* bytes, uint64_t length) {
  auto copy = std::make_shared<std::vector<uint8_t>>(length);
  memcpy(copy->data(), bytes, length);
  next.buffers[static_cast<size_t>(index)] = {copy->data(), length, 0};
  next.keep.push_back(copy);
}
void runner_threadgroup(int index, uint32_t length) { next.threadgroup_lengths[static_cast<size_t>(index)] = length; }
void runner_resident(uint32_t id) { next.resident.push_back(id); }
void runner_encode(const uint32_t* grid, const uint32_t* threads) {
  for (size_t i = 0; i < 3; i++) next.grid[i] = grid[i], next.threads_per_threadgroup[i] = threads[i];
  next.sequence = ++sequence;
  next.barrier_group = next.untracked_group = barrier_group;
  pending.push_back(next);
}
void runner_run() {
  emulator::run(pending);
  pending.clear();
  barrier_group++;
}
}
