#pragma once
// The kernels of the CPU device that are not linears: one table per instruction set.
//
// A table's entries work on raw pointers, on one thread, and never allocate. The drivers
// (cpu_encoder.cpp, attention.cpp, sample.cpp) spread them over the pool.

#include <cstdint>

#include "cpu/attention.h"
#include "cpu/gated_delta.h"
#include "cpu/isa.h"
#include "cpu/sample.h"
#include "encoder.h"

namespace saragossa::cpu {

struct VectorKernels {
  /// y[n] = x / sqrt(mean(x^2) + eps) * w; y may be x.
  void (*rms_norm)(float* y, const float* x, const float* w, float eps, int64_t n);
  /// y[n] += x / sqrt(mean(x^2) + eps) * w.
  void (*norm_add)(float* y, const float* x, const float* w, float eps, int64_t n);
  /// y[n] = a + b.
  void (*add)(float* y, const float* a, const float* b, int64_t n);
  /// y[n] = act(gate) * up.
  void (*act_mul)(float* y, const float* gate, const float* up, int64_t n, Activation act);
  /// y[n] = x * sigmoid(gate); y may be x.
  void (*sigmoid_mul)(float* y, const float* x, const float* gate, int64_t n);
  /// x[n] *= factor.
  void (*scale)(float* x, float factor, int64_t n);
  /// x[n] = cap * tanh(x / cap).
  void (*softcap)(float* x, float cap, int64_t n);
  /// x[i], x[i + half] = x[i] cos[i] - x[i + half] sin[i], x[i + half] cos[i] + x[i] sin[i]; i < half.
  void (*rotate)(float* x, const float* cos, const float* sin, int64_t half);
  /// y[n] = bf16(x), to nearest even.
  void (*to_bf16)(uint16_t* y, const float* x, int64_t n);
  /// codes[n] of x and the scales of their groups: KvLayer of u8.
  void (*to_codes)(uint8_t* codes, uint16_t* scales, const float* x, int64_t n);

  AttentionKernels attention;
  SampleKernels sample;
  DeltaKernels delta;
};

const VectorKernels& vector_kernels(Isa isa);

// Defined in the folder of each instruction set that the build's architecture has.
namespace scalar {
extern const VectorKernels kernels;
}
namespace avx2 {
extern const VectorKernels kernels;
}
namespace avx512 {
extern const VectorKernels kernels;
}
namespace neon {
extern const VectorKernels kernels;
}

}  // namespace saragossa::cpu
