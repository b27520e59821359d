// The many-row kernels of linears: matmul.metal.
#include "metal/linear.h"

namespace saragossa::metal {
namespace {

constexpr Kernel kMatmul{"matmul", "matmul"};

// Of matmul.metal.
constexpr int64_t kOutputs = 64;
constexpr int64_t kPitch = 36;
constexpr int64_t kThreads = 128;

/// Rows of a threadgroup: no more than there are, so that few rows do not multiply zeros.
int64_t rows_of_group(int64_t rows) { return rows <= 16 ? 16 : rows <= 32 ? 32 : 64; }

}  // namespace

void launch_matmul(MetalEncoder& encoder, const LinearJob& job) {
  const int64_t rows = rows_of_group(job.rows());
  Launch launch(encoder, kMatmul, linear_constants(job, u32(rows)));
  const int64_t tiles = bind_linear(launch, job, job.epilogue == SG_GATED ? kOutputs / 2 : kOutputs);
  launch.threadgroup_memory(0, (rows + kOutputs) * kPitch * 4);
  launch.groups(tiles, (job.rows() + rows - 1) / rows, 1, kThreads);
}

}  // namespace saragossa::metal
