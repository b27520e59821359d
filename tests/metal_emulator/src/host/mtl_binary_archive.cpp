#include "mtl_binary_archive.h"

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>

#include "classes.h"
#include "darwin.h"
#include "mac_models.h"
#include "mtl_compute_pipeline.h"
#include "mtl_device.h"

namespace emulator::host {
namespace {

constexpr const char* kErrorDomain = "MTLBinaryArchiveDomain";
enum BinaryArchiveError : Integer { kInvalidFile = 1, kUnexpectedElement = 2, kInternalError = 4 };

/// FNV-1a: against truncation and flipped bytes, not against malice.
std::string checksum(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016" PRIx64, hash);
  return digits;
}

std::string header() {
  return "emulated MTLBinaryArchive 1, build " + system_build() + ", " + mac_model().architecture;
}

std::string to_text(const MTLBinaryArchive& archive) {
  std::string text = header() + "\n";
  for (const std::string& function : archive.functions) text += function + "\n";
  return text + "checksum " + checksum(text) + "\n";
}

/// Fills the archive; the message says what is wrong with the text.
bool from_text(const std::string& text, MTLBinaryArchive& archive, std::string& message) {
  const size_t end = text.rfind("checksum ");
  if (end == std::string::npos || text.substr(end) != "checksum " + checksum(text.substr(0, end)) + "\n") {
    message = "the file is damaged or no binary archive";
    return false;
  }
  std::istringstream lines(text.substr(0, end));
  std::string line;
  std::getline(lines, line);
  if (line != header()) {
    message = "the file was written for another system: '" + line + "', this is '" + header() + "'";
    return false;
  }
  while (std::getline(lines, line)) archive.functions.insert(line);
  return true;
}

struct DescriptorMethods : MethodsOf<MTLBinaryArchiveDescriptor> {
  void set_url(NSURL* url) { self()->url = Ref(url); }
  NSURL* url() { return self()->url.get(); }
};

struct ArchiveMethods : MethodsOf<MTLBinaryArchive> {
  bool add_compute(MTLComputePipelineDescriptor* descriptor, NSError** error) {
    if (!descriptor || !descriptor->function) {
      set_error(error, kErrorDomain, kUnexpectedElement, "the pipeline descriptor has no compute function");
      return false;
    }
    self()->functions.insert(descriptor->function->identity);
    return true;
  }

  bool serialize(NSURL* url, NSError** error) {
    if (self()->functions.empty()) {
      set_error(error, kErrorDomain, kInvalidFile, "nothing to serialise: the archive has no function");
      return false;
    }
    std::ofstream file(url->path, std::ios::binary | std::ios::trunc);
    file << to_text(*self());
    file.close();
    if (file) return true;
    set_error(error, kErrorDomain, kInternalError, "cannot write " + url->path);
    return false;
  }
};

}  // namespace

MTLBinaryArchive* new_binary_archive(MTLBinaryArchiveDescriptor* descriptor, NSError** error) {
  auto archive = Ref<MTLBinaryArchive>::adopt(new MTLBinaryArchive);
  if (descriptor && descriptor->url) {
    const std::string& path = descriptor->url->path;
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    std::string message = "no such file";
    if (!file.is_open() || !from_text(text, *archive.get(), message)) {
      set_error(error, kErrorDomain, kInvalidFile, path + ": " + message);
      return nullptr;
    }
  }
  archive->retain();
  return archive.get();
}

void install_binary_archive() {
  define<MTLBinaryArchiveDescriptor>()
      .class_method<&MTLBinaryArchiveDescriptor::alloc>("alloc")
      .method<&DescriptorMethods::set_url>("setUrl:")
      .method<&DescriptorMethods::url>("url");
  define<MTLBinaryArchive>()
      .method<&MTLBinaryArchive::label>("label")
      .method<&MTLBinaryArchive::setLabel>("setLabel:")
      .method<&HasDevice::device>("device")
      .method<&ArchiveMethods::add_compute>("addComputePipelineFunctionsWithDescriptor:error:")
      .method<&ArchiveMethods::serialize>("serializeToURL:error:");
}

}  // namespace emulator::host
