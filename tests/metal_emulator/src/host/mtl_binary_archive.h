#pragma once
// MTLBinaryArchive: a file of compiled functions. Here it holds their identities: kernels are cached elsewhere
// (kernel/compile.h), and what a program must get right is when it finds, misses, writes and refuses an archive.
//
// The file is text: a line with the format, the macOS build and the GPU, one line a function, and a checksum. A file
// that is damaged, or was written by another system or GPU, is refused with an error.

#include <set>

#include "labelled.h"

namespace emulator::host {

struct MTLBinaryArchiveDescriptor final : Instance<MTLBinaryArchiveDescriptor> {
  static constexpr const char* kName = "MTLBinaryArchiveDescriptor";
  Ref<NSURL> url;
};

struct MTLBinaryArchive final : Instance<MTLBinaryArchive, Labelled> {
  static constexpr const char* kName = "MTLBinaryArchive";
  std::set<std::string> functions;
};

MTLBinaryArchive* new_binary_archive(MTLBinaryArchiveDescriptor* descriptor, NSError** error);

}  // namespace emulator::host
