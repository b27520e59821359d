#define NS_PRIVATE_IMPLEMENTATION
#define MTL_PRIVATE_IMPLEMENTATION
#define CA_PRIVATE_IMPLEMENTATION
#include "harness.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

namespace host_test {
namespace {

bool failed = false;
std::string pending;  // reports that were not looked for yet

/// What is alive when the queues' threads have let go of the last command buffer.
std::string live_objects_at_rest() {
  for (int i = 0; i < 100 && *emulator_live_objects(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return emulator_live_objects();
}

void collect() { pending += emulator_reports(); }

}  // namespace

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

void fail(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
  failed = true;
}

std::string take_reports() {
  collect();
  return std::exchange(pending, {});
}

void expect_report_at(const char* file, int line, const std::string& text) {
  collect();
  const size_t at = pending.find(text);
  if (at == std::string::npos) {
    fail(file, line, "no report holds '" + text + "'; there is: " + (pending.empty() ? "none" : pending));
    return;
  }
  const size_t begin = at == 0 ? 0 : pending.rfind('\n', at) + 1;
  pending.erase(begin, pending.find('\n', at) + 1 - begin);
}

void set(const char* setting, const char* value) {
  if (emulator_set(setting, value) != 0) fail(__FILE__, __LINE__, std::string("no setting ") + setting + "=" + value);
}

MTL::Device* device() {
  static MTL::Device* device = MTL::CreateSystemDefaultDevice();
  return device;
}

NS::String* string(const std::string& text) { return NS::String::string(text.c_str(), NS::UTF8StringEncoding); }

float* floats(MTL::Buffer* buffer) { return static_cast<float*>(buffer->contents()); }

MTL::Buffer* buffer(size_t count, const char* label, MTL::ResourceOptions options) {
  MTL::Buffer* result = device()->newBuffer(count * sizeof(float), options);
  result->setLabel(string(label));
  return result;
}

void dispatch(MTL::ComputeCommandEncoder* encoder, MTL::ComputePipelineState* pipeline, MTL::Buffer* in,
              MTL::Buffer* out, size_t count) {
  encoder->setComputePipelineState(pipeline);
  encoder->setBuffer(in, 0, 0);
  encoder->setBuffer(out, 0, 1);
  encoder->dispatchThreads(MTL::Size::Make(count, 1, 1), MTL::Size::Make(32, 1, 1));
}

}  // namespace host_test

int main(int argc, char** argv) {
  using namespace host_test;
  if (argc == 2 && std::strcmp(argv[1], "--list") == 0) {
    for (const Case& c : cases()) std::printf("%s\t%s\n", c.name, c.death ? c.death : "");
    return 0;
  }
  for (const Case& c : cases()) {
    if (argc != 2 || std::strcmp(argv[1], c.name) != 0) continue;
    NS::AutoreleasePool* pool = NS::AutoreleasePool::alloc()->init();
    c.body();
    pool->release();
    if (const std::string left = take_reports(); !left.empty()) fail(c.name, 0, "unexpected reports:\n" + left);
    if (const std::string left = live_objects_at_rest(); !left.empty()) fail(c.name, 0, "never released:\n" + left);
    return failed;
  }
  std::fprintf(stderr, "usage: %s --list | CASE\n", argv[0]);
  return 2;
}
