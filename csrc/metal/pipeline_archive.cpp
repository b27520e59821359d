#include "metal/pipeline_archive.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "core/errors.h"

namespace saragossa::metal {
namespace fs = std::filesystem;
namespace {

NS::URL* file_url(const std::string& path) { return NS::URL::fileURLWithPath(ns_string(path)); }

NS::SharedPtr<MTL::BinaryArchive> open(MTL::Device* device, const std::string& path) {
  const auto descriptor = NS::TransferPtr(MTL::BinaryArchiveDescriptor::alloc()->init());
  if (!path.empty()) descriptor->setUrl(file_url(path));
  NS::Error* error = nullptr;
  return NS::TransferPtr(device->newBinaryArchive(descriptor.get(), &error));
}

}  // namespace

PipelineArchive::PipelineArchive(MTL::Device* device, const std::string& folder, const std::string& key) {
  if (folder.empty()) return;
  const Pool pool;
  path_ = (fs::path(folder) / (key + ".metalarchive")).string();
  std::error_code none;
  if (fs::exists(path_, none)) archive_ = open(device, path_);
  if (!archive_) archive_ = open(device, "");  // no file yet, or one that this system cannot use
}

void PipelineArchive::add(MTL::ComputePipelineDescriptor* descriptor) {
  if (!archive_) return;
  NS::Error* error = nullptr;
  changed_ |= archive_->addComputePipelineFunctions(descriptor, &error);
}

void PipelineArchive::save() {
  if (!archive_ || !changed_) return;
  const Pool pool;
  std::error_code failed;
  fs::create_directories(fs::path(path_).parent_path(), failed);
  const std::string temporary = message(path_, ".", ::getpid());
  NS::Error* error = nullptr;
  // A cache that cannot be written costs the next start some time, nothing else.
  if (archive_->serializeToURL(file_url(temporary), &error)) fs::rename(temporary, path_, failed);
  fs::remove(temporary, failed);
  changed_ = false;
}

}  // namespace saragossa::metal
