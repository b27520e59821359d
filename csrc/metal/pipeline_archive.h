#pragma once
// Machine code of pipelines, kept between runs: the first start compiles, later ones load.

#include <string>

#include "metal/metal_cpp.h"

namespace saragossa::metal {

/// An MTLBinaryArchive in a file whose name holds what its contents depend on. Without a file (no cache folder, a
/// file that the system refuses) it only forgets: nothing fails.
class PipelineArchive {
 public:
  /// folder: empty for none. key: of the sources, the GPU and the system's build.
  PipelineArchive(MTL::Device* device, const std::string& folder, const std::string& key);

  MTL::BinaryArchive* get() const { return archive_.get(); }  // null: none
  void add(MTL::ComputePipelineDescriptor* descriptor);
  /// Writes what was added, atomically; called when a model has warmed up and at the end.
  void save();

 private:
  NS::SharedPtr<MTL::BinaryArchive> archive_;
  std::string path_;
  bool changed_ = false;
};

}  // namespace saragossa::metal
