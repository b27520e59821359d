#include <cstring>

#include "harness.h"

using namespace host_test;

namespace {
constexpr const char* kGood =
    "#include <metal_stdlib>\nusing namespace metal;\n"
    "kernel void fill(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) { out[i] = VALUE; }\n";

MTL::Library* compile(const char* source, MTL::CompileOptions* options, NS::Error** error) {
  return device()->newLibrary(string(source), options, error);
}
std::string text(NS::Error* error) { return error ? error->localizedDescription()->utf8String() : ""; }
}  // namespace

HOST_TEST(macros_reach_the_source) {
  Released released;
  NS::Error* error = nullptr;
  MTL::CompileOptions* options = released(MTL::CompileOptions::alloc()->init());
  const NS::Object* key = string("VALUE");
  const NS::Object* value = NS::Number::number(2.5);
  options->setPreprocessorMacros(NS::Dictionary::dictionary(&value, &key, 1));
  options->setFastMathEnabled(false);
  MTL::Library* library = released(compile(kGood, options, &error));
  CHECK(library != nullptr);
  CHECK(library->functionNames()->count() == 1);
  MTL::Function* function = released(library->newFunction(string("fill")));
  CHECK(std::strcmp(function->name()->utf8String(), "fill") == 0);
  MTL::ComputePipelineState* p = released(device()->newComputePipelineState(function, &error));
  CHECK(p->threadExecutionWidth() == 32 && p->maxTotalThreadsPerThreadgroup() == 1024);
}

HOST_TEST(a_compile_error_names_the_line) {
  NS::Error* error = nullptr;
  CHECK(compile(kGood, nullptr, &error) == nullptr);  // VALUE is not defined
  CHECK(error != nullptr && error->code() == 3);
  CHECK(text(error).find("3:") != std::string::npos);
  CHECK(text(error).find("VALUE") != std::string::npos);
}

HOST_TEST(an_unknown_function_is_nil) {
  Released released;
  NS::Error* error = nullptr;
  MTL::Library* library = released(compile("#include <metal_stdlib>\nkernel void f() {}\n", nullptr, &error));
  CHECK(library->newFunction(string("g")) == nullptr);
  MTL::FunctionConstantValues* none = released(MTL::FunctionConstantValues::alloc()->init());
  CHECK(library->newFunction(string("g"), none, &error) == nullptr);
  CHECK(text(error).find("no function named 'g'") != std::string::npos);
}

HOST_TEST(a_function_constant_by_index_and_by_name) {
  Released released;
  const char* source =
      "#include <metal_stdlib>\nusing namespace metal;\nconstant float value [[function_constant(3)]];\n"
      "kernel void fill(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) { out[i] = value; }\n";
  NS::Error* error = nullptr;
  MTL::Library* library = released(compile(source, nullptr, &error));
  CHECK(library != nullptr);
  MTL::FunctionConstantValues* none = released(MTL::FunctionConstantValues::alloc()->init());
  CHECK(library->newFunction(string("fill"), none, &error) == nullptr);
  CHECK(text(error).find("value") != std::string::npos || text(error).find("3") != std::string::npos);

  MTL::CommandQueue* queue = released(device()->newCommandQueue());
  const float by_index = 4, by_name = 5;
  for (const bool name : {false, true}) {
    MTL::FunctionConstantValues* values = released(MTL::FunctionConstantValues::alloc()->init());
    if (name) {
      values->setConstantValue(&by_name, MTL::DataTypeFloat, string("value"));
    } else {
      values->setConstantValue(&by_index, MTL::DataTypeFloat, NS::UInteger{3});
    }
    MTL::Function* function = released(library->newFunction(string("fill"), values, &error));
    MTL::ComputePipelineState* p = released(device()->newComputePipelineState(function, &error));
    MTL::Buffer* out = released(buffer(32, "out"));
    MTL::CommandBuffer* commands = queue->commandBuffer();
    MTL::ComputeCommandEncoder* encoder = commands->computeCommandEncoder();
    encoder->setComputePipelineState(p);
    encoder->setBuffer(out, 0, 0);
    encoder->dispatchThreads(MTL::Size::Make(32, 1, 1), MTL::Size::Make(32, 1, 1));
    encoder->endEncoding();
    commands->commit();
    commands->waitUntilCompleted();
    CHECK(floats(out)[31] == (name ? by_name : by_index));
  }
}

HOST_TEST(a_newer_language_than_the_system_is_refused) {
  set("os_version", "15.0");
  Released released;
  NS::Error* error = nullptr;
  MTL::CompileOptions* options = released(MTL::CompileOptions::alloc()->init());
  options->setLanguageVersion(MTL::LanguageVersion(4 << 16));
  CHECK(compile("kernel void f() {}", options, &error) == nullptr);
  CHECK(text(error).find("language version 4.0 is not supported on macOS 15.0, which has 3.2") != std::string::npos);
}

HOST_DEATH_TEST(math_mode_needs_macos_15, "-[MTLCompileOptions setMathMode:] needs macOS 15.0") {
  set("os_version", "14.5");
  MTL::CompileOptions::alloc()->init()->setMathMode(MTL::MathModeSafe);
}

HOST_TEST(a_compile_fails_on_request) {
  Released released;
  NS::Error* error = nullptr;
  const char* source = "#include <metal_stdlib>\nkernel void f() {}\n";
  set("fail_compile", "0");
  CHECK(compile(source, nullptr, &error) == nullptr);
  CHECK(text(error).find("on request") != std::string::npos);
  CHECK(released(compile(source, nullptr, &error)) != nullptr);
  set("fail_compile_of", "void f");
  CHECK(compile(source, nullptr, &error) == nullptr);
}

HOST_TEST(a_pipeline_fails_on_request) {
  Released released;
  NS::Error* error = nullptr;
  MTL::Library* library =
      released(compile("#include <metal_stdlib>\nkernel void s() {}\nkernel void t() {}\n", nullptr, &error));
  CHECK(library != nullptr);
  MTL::Function* s = released(library->newFunction(string("s")));
  MTL::Function* t = released(library->newFunction(string("t")));
  set("fail_compile_of", "s");
  CHECK(device()->newComputePipelineState(s, &error) == nullptr);
  CHECK(text(error).find("pipeline of 's'") != std::string::npos);
  CHECK(released(device()->newComputePipelineState(t, &error)) != nullptr);
  set("fail_pipeline", "0");
  CHECK(device()->newComputePipelineState(t, &error) == nullptr);
}

HOST_TEST(a_pipeline_of_a_nil_function_is_reported) {
  NS::Error* error = nullptr;
  CHECK(device()->newComputePipelineState(static_cast<MTL::Function*>(nullptr), &error) == nullptr);
  expect_report("made from a nil function");
}
