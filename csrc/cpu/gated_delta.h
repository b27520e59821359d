#pragma once
// The gated delta net of the CPU device.
//
// Two forms of the delta rule. The sequential one takes a row at a time: one pass over the state, which stays in the
// first cache since 32 of its value rows go through all rows of the run before the next ones do. The chunked one
// (kDeltaChunk rows at once, small matrix products) serves the whole chunks of long runs; the rest goes row by row.
// A row's result depends neither on the number of threads nor on other runs; in the sequential form neither on where
// its run begins, in the chunked one not on a cut between two chunks.

#include <cstdint>
#include <vector>

#include "encoder.h"

namespace saragossa::cpu {

constexpr int64_t kDeltaChunk = 64;  // rows of a chunk
constexpr int64_t kDeltaSlice = 32;  // value rows that go together: a multiple of the widest panel

/// One row on some value rows of one head: S = decay S + delta k^T, delta = beta (v - decay S k), y = S q.
struct DeltaStep {
  float* to = nullptr;          // [rows, key_dim]
  const float* from = nullptr;  // as to, may be to
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;  // [rows]
  float* y = nullptr;        // [rows]
  float decay = 0.0f, beta = 0.0f;
  int64_t rows = 0, key_dim = 0;
};

/// `count` chunks of one head, in their order, on `rows` of its value rows.
struct DeltaChunks {
  float* to = nullptr;          // state [rows, key_dim]
  const float* from = nullptr;  // as to, may be to; null: zeros
  const float* q = nullptr;     // q, k, v of the first row; the next ones are `stride` floats on
  const float* k = nullptr;
  const float* v = nullptr;
  int64_t stride = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  const float* decay = nullptr;  // of the first row
  const float* beta = nullptr;
  int64_t gate_stride = 0;
  int64_t count = 0, rows = 0, key_dim = 0;
};

struct DeltaKernels {
  /// packed[j * n + c] = w[c * width + j].
  void (*pack_conv)(float* packed, const float* w, int64_t width, int64_t n);
  /// y[n] = silu(sum over j of rows[j][n] * packed[j][n]), j ascending.
  void (*conv)(float* y, const float* const* rows, const float* packed, int64_t width, int64_t n);
  /// x[n] *= factor / sqrt(sum of squares + 1e-6).
  void (*l2_norm)(float* x, float factor, int64_t n);
  /// decay[n] = exp(-exp(a_log) softplus(a + dt_bias)), beta[n] = sigmoid(b).
  void (*gates)(float* decay, float* beta, const float* a, const float* b, const float* a_log, const float* dt_bias,
                int64_t n);
  void (*step)(const DeltaStep& step);
  /// work: delta_chunk_work floats. Null: the set has the sequential form alone.
  void (*chunks)(const DeltaChunks& chunks, float* work);
};

int64_t delta_chunk_work(int64_t rows, int64_t key_dim);

/// Buffers kept between calls.
struct DeltaWorkspace {
  std::vector<float> gates;               // decay [rows, value_heads], then beta
  std::vector<std::vector<float>> state;  // per worker, where a row's state is not kept
  std::vector<std::vector<float>> work;   // per worker
};

}  // namespace saragossa::cpu
