#pragma once
// Tests of the host side, written against Apple's metal-cpp alone. One case a process: emulator_host_tests NAME.
//
//   HOST_TEST(zero_length_buffer_is_nil) {
//     CHECK(device()->newBuffer(0, MTL::ResourceStorageModeShared) == nullptr);
//     expect_report("length of 0");
//   }
//
// A case fails with a CHECK that does not hold, with a report that it did not expect, and with objects that it did
// not release. HOST_DEATH_TEST(name, text) passes where the process aborts with the text on stderr.

#include <Foundation/Foundation.hpp>
#include <Metal/Metal.hpp>
#include <string>
#include <vector>

#include "emulator.h"

namespace host_test {

struct Case {
  const char* name;
  const char* death;  // null, or what it dies with
  void (*body)();
};
std::vector<Case>& cases();

struct Registration {
  Registration(const char* name, const char* death, void (*body)()) { cases().push_back({name, death, body}); }
};

void fail(const char* file, int line, const std::string& what);
/// One report since the last call holds the text; it is taken out of the list.
void expect_report_at(const char* file, int line, const std::string& text);
/// All reports so far, one a line, and forgets them.
std::string take_reports();

void set(const char* setting, const char* value);
MTL::Device* device();
NS::String* string(const std::string& text);

/// A pipeline of one of the kernels in kernels.cpp; +1.
MTL::ComputePipelineState* pipeline(const char* kernel);
MTL::Buffer* buffer(size_t floats, const char* label, MTL::ResourceOptions options = MTL::ResourceStorageModeShared);
float* floats(MTL::Buffer* buffer);
/// Binds input and output at 0 and 1 and dispatches `count` threads, 32 a threadgroup.
void dispatch(MTL::ComputeCommandEncoder* encoder, MTL::ComputePipelineState* pipeline, MTL::Buffer* in,
              MTL::Buffer* out, size_t count);

struct Released {  // releases at the end of the scope
  template <class T>
  T* operator()(T* object) {
    objects.push_back(reinterpret_cast<NS::Object*>(object));
    return object;
  }
  ~Released() {
    for (auto i = objects.rbegin(); i != objects.rend(); ++i) {
      if (*i) (*i)->release();
    }
  }
  std::vector<NS::Object*> objects;
};

}  // namespace host_test

#define HOST_CASE(name, death)                                                  \
  static void name();                                                           \
  static const host_test::Registration name##_registration(#name, death, name); \
  static void name()
#define HOST_TEST(name) HOST_CASE(name, nullptr)
#define HOST_DEATH_TEST(name, text) HOST_CASE(name, text)
#define CHECK(condition) \
  if (!(condition)) host_test::fail(__FILE__, __LINE__, #condition)
#define expect_report(text) host_test::expect_report_at(__FILE__, __LINE__, text)
