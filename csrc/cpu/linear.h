#pragma once
// Linears of the CPU device: one call is one op, spread over the pool.

#include <span>

#include "core/switches.h"
#include "core/thread_pool.h"
#include "cpu/isa.h"
#include "encoder.h"

namespace saragossa::cpu {

/// One matrix with raw pointers, as the kernels see it. Layout: quant/weight.h.
struct Matrix {
  int64_t out = 0, in = 0;
  int bits = 0, group = 0;        // bits 0: dense
  DType dtype = DType::f32;       // dense: of data; else of scales and biases, u8 of mxfp4 and mxfp8
  const uint8_t* data = nullptr;  // row stride: in * bits / 8, or in * size_of(dtype)
  const uint8_t* scales = nullptr;
  const uint8_t* biases = nullptr;  // where the format has none, the scales again
};
Matrix matrix_of(const Weight& w);
inline int64_t row_bytes_of(const Matrix& w) { return w.bits ? w.in * w.bits / 8 : w.in * size_of(w.dtype); }

enum class LinearEpilogue {
  store,  // y = x W^T + bias
  add,    // y += x W^T + bias
  gated,  // two outputs: out[0].y = act(out[0]) * out[1]; out[1].y is not written
};

constexpr int kLinearOuts = 4;

struct LinearJob {
  struct Out {
    Matrix w;
    float* y = nullptr;  // [rows, w.out], contiguous
    const float* bias = nullptr;
  };
  const float* x = nullptr;  // [rows, in], contiguous
  int64_t rows = 0;
  Out outs[kLinearOuts];
  int n_outs = 1;
  LinearEpilogue epilogue = LinearEpilogue::store;
  Activation act = Activation::silu;
  /// What will probably run next: its first weights are fetched ahead. Workers read it until run returns.
  const LinearJob* next = nullptr;
};

/// Holds the workspace (quantised activations) between calls; one per device.
/// A row's result does not depend on how many rows there are for 1 to 8 rows (matvec form);
/// more rows take the matmul form.
class LinearEngine {
 public:
  LinearEngine(Isa isa, Activations activations, ThreadPool& pool);
  ~LinearEngine();
  void run(const LinearJob& job);
  /// One row of a weight as float, for embeddings: y = row * scale.
  void dequantize_row(const Matrix& w, int64_t row, float scale, float* y) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace saragossa::cpu
