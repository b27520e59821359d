// The many-row kernels of linears: matmul.metal, matmul_tensor.metal.
#include "metal/linear.h"
#include "params/linear_tensor.h"

namespace saragossa::metal {
namespace {

constexpr Kernel kMatmul{"matmul", "matmul"};
constexpr Kernel kHalfRows{"matmul_tensor", "half_rows"};
constexpr Kernel kMatmulTensor{"matmul_tensor", "matmul_tensor"};

// half_rows reads none of its family's constants, but they must have values.
constexpr Constants kUnread{{}, 8};

// Of both families.
constexpr int64_t kOutputs = 64;
constexpr int64_t kPitch = 36;  // matmul
constexpr int64_t kDepth = 64;  // matmul_tensor
constexpr int64_t kThreads = 128;

/// Rows of a threadgroup: no more than there are, so that few rows do not multiply zeros.
int64_t rows_of_group(int64_t rows) { return rows <= 16 ? 16 : rows <= 32 ? 32 : 64; }

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

int64_t outputs_of_group(const LinearJob& job) { return job.epilogue == SG_GATED ? kOutputs / 2 : kOutputs; }

}  // namespace

void launch_matmul(MetalEncoder& encoder, const LinearJob& job) {
  const int64_t rows = rows_of_group(job.rows());
  Launch launch(encoder, kMatmul, linear_constants(job, u32(rows)));
  const int64_t tiles = bind_linear(launch, job, outputs_of_group(job));
  launch.threadgroup_memory(0, (rows + kOutputs) * kPitch * 4);
  launch.groups(tiles, (job.rows() + rows - 1) / rows, 1, kThreads);
}

bool tensor_ops_take(const LinearJob& job) {
  return !is_ragged(job) && (job.weight().affine() || job.weight().data.dtype != DType::f32);
}

void launch_matmul_tensor(MetalEncoder& encoder, const LinearJob& job) {
  const int64_t rows = job.rows() <= 32 ? 32 : 64, in = job.weight().in;
  const int64_t padded_rows = round_up(job.rows(), rows), padded_in = round_up(in, kDepth);
  const Tensor x = encoder.scratch(DType::f16, {padded_rows, padded_in});
  const Tensor scale = encoder.scratch(DType::f32, {padded_rows});
  Launch(encoder, kHalfRows, kUnread)
      .buffer(SG_HALF_Y, x)
      .buffer(SG_HALF_SCALE, scale)
      .buffer(SG_HALF_X, job.x)
      .params(SG_HALF_PARAMS, HalfRowsParams{u32(job.rows()), u32(in), u32(padded_rows), u32(padded_in)})
      .groups((padded_rows + 3) / 4, 1, 1, kThreads);
  encoder.barrier();
  Launch launch(encoder, kMatmulTensor, linear_constants(job, u32(rows)));
  const int64_t tiles = bind_linear(launch, job, outputs_of_group(job));
  launch.buffer(SG_LINEAR_X, x).buffer(SG_LINEAR_X_SCALE, scale).threadgroup_memory(0, rows * kOutputs * 4);
  launch.groups(tiles, padded_rows / rows, 1, kThreads);
}

}  // namespace saragossa::metal
