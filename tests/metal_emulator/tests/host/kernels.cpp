// The kernels of these tests.
#include "harness.h"

namespace host_test {
namespace {

constexpr const char* kSource = R"(
#include <metal_stdlib>
using namespace metal;
constant float step_size [[function_constant(0)]];
constant float step_or_one = is_function_constant_defined(step_size) ? step_size : 1.0f;

kernel void add_step(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],
                     uint i [[thread_position_in_grid]]) {
  out[i] = in[i] + step_or_one;
}
kernel void scale(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],
                  constant float& factor [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  out[i] = in[i] * factor;
}
kernel void through_pointer(device const ulong* addresses [[buffer(0)]], device float* out [[buffer(1)]],
                            uint i [[thread_position_in_grid]]) {
  out[i] = ((device const float*)addresses[0])[i];
}
)";

}  // namespace

MTL::ComputePipelineState* pipeline(const char* kernel) {
  NS::Error* error = nullptr;
  Released released;
  MTL::Library* library = released(device()->newLibrary(string(kSource), nullptr, &error));
  if (!library) {
    fail(__FILE__, __LINE__, error->localizedDescription()->utf8String());
    return nullptr;
  }
  MTL::Function* function = released(library->newFunction(string(kernel)));
  return device()->newComputePipelineState(function, &error);
}

}  // namespace host_test
