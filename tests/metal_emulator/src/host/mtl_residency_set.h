#pragma once
// MTLResidencySet (macOS 15): allocations that stay resident without being bound. Changes count from commit on.

#include <algorithm>

#include "mtl_buffer.h"

namespace emulator::host {

struct MTLResidencySetDescriptor final : Instance<MTLResidencySetDescriptor, Labelled> {
  static constexpr const char* kName = "MTLResidencySetDescriptor";
  UInteger initial_capacity = 0;
};

struct MTLResidencySet final : Instance<MTLResidencySet, Labelled> {
  static constexpr const char* kName = "MTLResidencySet";
  std::vector<Ref<MTLBuffer>> members;    // with the changes since the last commit
  std::vector<Ref<MTLBuffer>> committed;  // what is resident
  bool changed = false;
};

MTLResidencySet* new_residency_set(MTLResidencySetDescriptor* descriptor, NSError** error);

/// Residency sets of a queue or a command buffer.
class ResidencySets {
 public:
  void add(MTLResidencySet* set) { sets_.emplace_back(set); }
  void add_all(MTLResidencySet* const sets[], UInteger count) {
    for (UInteger i = 0; i < count; ++i) add(sets[i]);
  }
  void remove(MTLResidencySet* set) {
    std::erase_if(sets_, [&](const auto& own) { return own.get() == set; });
  }
  void remove_all(MTLResidencySet* const sets[], UInteger count) {
    for (UInteger i = 0; i < count; ++i) remove(sets[i]);
  }
  /// Adds the ids of all committed members.
  void append_ids(std::vector<BufferId>& ids) const {
    for (const auto& set : sets_) {
      for (const auto& buffer : set->committed) ids.push_back(buffer->id);
    }
  }

 private:
  std::vector<Ref<MTLResidencySet>> sets_;
};

}  // namespace emulator::host
