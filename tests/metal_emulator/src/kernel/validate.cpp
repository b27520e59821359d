// What Metal's own validation layer would say of a dispatch.
#include <cstdint>

#include "buffer_table.h"
#include "execute.h"
#include "report.h"
#include "settings.h"

namespace emulator {
namespace {

class Validator {
 public:
  explicit Validator(const Dispatch& dispatch) : d_(dispatch) {}

  bool run() {
    sizes();
    for (const Parameter& p : d_.kernel->parameters) {
      if (p.kind == ParameterKind::buffer) buffer(p);
      if (p.kind == ParameterKind::threadgroup && d_.threadgroup_lengths[p.index] == 0)
        refuse("binding", "[[threadgroup(" + std::to_string(p.index) + ")]] '" + p.name +
                              "' has no length; call setThreadgroupMemoryLength");
    }
    for (const Binding& b : d_.buffers) alive(b);
    return good_;
  }

 private:
  void refuse(const char* kind, const std::string& what) {
    report(kind, "kernel '" + d_.kernel->name + "'" + (d_.label.empty() ? "" : " (" + d_.label + ")") + ": " + what);
    good_ = false;
  }

  void sizes() {
    uint64_t threads = 1, grid = 1;
    for (int i = 0; i < 3; i++) threads *= d_.threads_per_threadgroup[i], grid *= d_.grid[i];
    if (threads == 0 || grid == 0) return refuse("limit", "a dispatch of no threads");
    if (threads > static_cast<uint64_t>(d_.kernel->max_total_threads))
      refuse("limit", std::to_string(threads) + " threads per threadgroup, the pipeline allows " +
                          std::to_string(d_.kernel->max_total_threads));
  }

  void buffer(const Parameter& p) {
    const Binding& b = d_.buffers[p.index];
    const std::string name = "[[buffer(" + std::to_string(p.index) + ")]] '" + p.name + "'";
    if (!b.address) {
      if (p.active) refuse("binding", name + " is not bound");
      return;
    }
    if (p.reference && b.length < p.size)
      refuse("binding", name + " needs " + std::to_string(p.size) + " bytes, bound are " + std::to_string(b.length));
    if (reinterpret_cast<uintptr_t>(b.address) % p.alignment)
      refuse("binding", name + " needs an offset that is a multiple of " + std::to_string(p.alignment));
  }

  void alive(const Binding& b) {
    const BufferEntry* entry = find_entry(b.buffer);
    if (entry && !entry->live) refuse("freed-buffer", describe(*entry) + " was freed before the dispatch ran");
  }

  const Dispatch& d_;
  bool good_ = true;
};

}  // namespace

bool validate(const Dispatch& dispatch) { return Validator(dispatch).run(); }

}  // namespace emulator
