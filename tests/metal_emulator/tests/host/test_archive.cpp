#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "harness.h"

using namespace host_test;

namespace {

struct ArchiveFile {
  ArchiveFile() : path("/tmp/emulated-archive-" + std::to_string(getpid())) {}
  ~ArchiveFile() { std::remove(path.c_str()); }
  NS::URL* url() const { return NS::URL::fileURLWithPath(string(path)); }
  std::string path;
};

struct Fixture {
  Released released;
  ArchiveFile file;
  NS::Error* error = nullptr;
  MTL::Library* library = nullptr;

  Fixture() {
    const char* source = "#include <metal_stdlib>\nkernel void f() {}\nkernel void g() {}\n";
    library = released(device()->newLibrary(string(source), nullptr, &error));
  }
  MTL::ComputePipelineDescriptor* descriptor(const char* kernel) {
    auto* result = released(MTL::ComputePipelineDescriptor::alloc()->init());
    result->setComputeFunction(released(library->newFunction(string(kernel))));
    return result;
  }
  MTL::BinaryArchive* open(bool from_file) {
    auto* result = released(MTL::BinaryArchiveDescriptor::alloc()->init());
    if (from_file) result->setUrl(file.url());
    return released(device()->newBinaryArchive(result, &error));
  }
  bool found(MTL::BinaryArchive* archive, const char* kernel) {
    MTL::ComputePipelineDescriptor* d = descriptor(kernel);
    d->setBinaryArchives(NS::Array::array(archive));
    return released(device()->newComputePipelineState(d, MTL::PipelineOptionFailOnBinaryArchiveMiss, nullptr,
                                                      &error)) != nullptr;
  }
  std::string message() const { return error->localizedDescription()->utf8String(); }
  void write() {
    MTL::BinaryArchive* archive = open(false);
    CHECK(archive->addComputePipelineFunctions(descriptor("f"), &error));
    CHECK(archive->serializeToURL(file.url(), &error));
  }
};

}  // namespace

HOST_TEST(an_archive_is_written_and_found_again) {
  Fixture t;
  t.write();
  MTL::BinaryArchive* archive = t.open(true);
  CHECK(archive != nullptr);
  CHECK(t.found(archive, "f"));
  CHECK(!t.found(archive, "g"));
  CHECK(t.message().find("no binary archive of the descriptor has it") != std::string::npos);
}

HOST_TEST(a_damaged_archive_is_an_error) {
  Fixture t;
  t.write();
  std::fstream(t.file.path, std::ios::in | std::ios::out).seekp(60).put('#');
  CHECK(t.open(true) == nullptr);
  CHECK(t.error->code() == 1);
  CHECK(t.message().find("damaged") != std::string::npos);
  std::ofstream(t.file.path) << "";
  CHECK(t.open(true) == nullptr);
}

HOST_TEST(an_archive_of_another_system_is_an_error) {
  Fixture t;
  t.write();
  set("os_version", "15.1");
  CHECK(t.open(true) == nullptr);
  CHECK(t.message().find("written for another system") != std::string::npos);
}

HOST_TEST(an_archive_of_another_gpu_is_an_error) {
  Fixture t;
  t.write();
  set("device", "Apple M1");
  CHECK(t.open(true) == nullptr);
}

HOST_TEST(a_missing_archive_is_an_error) {
  Fixture t;
  CHECK(t.open(true) == nullptr);
  CHECK(t.message().find("no such file") != std::string::npos);
}

HOST_TEST(an_archive_that_cannot_be_written_is_an_error) {
  Fixture t;
  MTL::BinaryArchive* archive = t.open(false);
  CHECK(!archive->serializeToURL(t.file.url(), &t.error));  // nothing in it
  CHECK(archive->addComputePipelineFunctions(t.descriptor("f"), &t.error));
  CHECK(!archive->serializeToURL(NS::URL::fileURLWithPath(string("/no/such/folder/archive")), &t.error));
  CHECK(t.message().find("cannot write") != std::string::npos);
}
