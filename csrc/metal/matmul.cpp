// The many-row kernels of linears: matmul.metal, matmul_tensor.metal, matmul_merge.metal.
#include <algorithm>

#include "metal/linear.h"
#include "params/linear_tensor.h"
#include "params/matmul_merge.h"

namespace saragossa::metal {
namespace {

constexpr Kernel kMatmul{"matmul", "matmul"};
constexpr Kernel kHalfRows{"matmul_tensor", "half_rows"};
constexpr Kernel kMatmulTensor{"matmul_tensor", "matmul_tensor"};
constexpr Kernel kMerge{"matmul_merge", "matmul_merge"};

// half_rows reads none of its family's constants, but they must have values.
constexpr Constants kUnread{{}, 8};

// Of both families.
constexpr int64_t kOutputs = 64;
constexpr int64_t kPitch = 36;  // matmul
constexpr int64_t kDepth = 64;  // matmul_tensor
constexpr int64_t kThreads = 128;

/// Rows of a threadgroup: no more than there are, so that few rows do not multiply zeros.
int64_t rows_of_group(int64_t rows) { return rows <= 16 ? 16 : rows <= 32 ? 32 : 64; }

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t n, int64_t step) { return ceil_div(n, step) * step; }

int64_t outputs_of_group(const LinearJob& job) { return job.epilogue == SG_GATED ? kOutputs / 2 : kOutputs; }

/// Inputs of a split of a linear of few rows. By the weight alone: in a group and by itself, on every GPU, a linear
/// adds in the same order.
int64_t depth_of(const Tuning& tuning, const Weight& w) {
  const int64_t splits = std::min(tuning.split_groups / ceil_div(w.out, kOutputs), w.in / tuning.split_depth);
  return splits < 2 ? w.in : round_up(ceil_div(w.in, splits), kDepth);
}

int64_t splits_of(const LinearJob& job, size_t j) {
  return job.depth[j] > 0 ? ceil_div(job.weight().in, job.depth[j]) : 1;
}

int64_t most_splits(const LinearJob& job) {
  int64_t most = 1;
  for (size_t j = 0; j < job.outs.size(); ++j) most = std::max(most, splits_of(job, j));
  return most;
}

/// `job` with job.depth set: the sums of each split, then one dispatch that adds them and has the epilogue.
void run_split(MetalEncoder& encoder, const LinearJob& job) {
  MergeParams merge{u32(job.rows()), {}, {}, {}, shared_value(job.activation)};
  int64_t floats = 0;
  for (size_t j = 0; j < job.outs.size(); ++j) {
    merge.out[j] = u32(job.outs[j].weight->out);
    merge.splits[j] = u32(splits_of(job, j));
    merge.first[j] = u32(floats);
    floats += splits_of(job, j) * job.rows() * job.outs[j].weight->out;
  }
  u32(floats);
  const OpScratch scratch(encoder, {{DType::f32, {floats}}});
  const Tensor& parts = scratch[0];
  std::array<LinearOut, SG_LINEAR_MOST> sums;
  for (size_t j = 0; j < job.outs.size(); ++j) {
    const int64_t rows = splits_of(job, j) * job.rows(), out = job.outs[j].weight->out;
    sums[j] = {parts.slice(merge.first[j], rows * out).reshape({rows, out}), job.outs[j].weight, {}};
  }
  LinearJob part{job.x, {sums.data(), job.outs.size()}};
  part.depth = job.depth;
  run_matmul_unsplit(encoder, part);
  encoder.barrier();
  Constants constants = linear_constants(job, 0);
  for (const size_t of_format : {0, 1, 2, 7}) constants.values[of_format] = 0;  // one pipeline for all formats
  Launch launch(encoder, kMerge, constants);
  int64_t width = 0;
  for (size_t j = 0; j < job.outs.size(); ++j) {
    const int slot = static_cast<int>(j) * SG_LINEAR_SLOTS;
    launch.buffer(SG_LINEAR_Y0 + slot, job.outs[j].y).buffer(SG_LINEAR_BIAS0 + slot, job.outs[j].bias);
    if (job.epilogue != SG_GATED || j == 0) width += job.outs[j].weight->out;
  }
  launch.buffer(SG_MERGE_PARTS, parts).params(SG_MERGE_PARAMS, merge).threads(job.rows() * width);
}

}  // namespace

void run_matmul_unsplit(MetalEncoder& encoder, const LinearJob& job) {
  if (encoder.context().gpu.tensor_ops && tensor_ops_take(job))
    launch_matmul_tensor(encoder, job);
  else
    launch_matmul(encoder, job);
}

void run_matmul(MetalEncoder& encoder, const LinearJob& job) {
  const Context& context = encoder.context();
  LinearJob split = job;
  if (context.switches.metal_split_matmul && job.rows() <= context.tuning.split_rows)
    for (size_t j = 0; j < job.outs.size(); ++j) split.depth[j] = depth_of(context.tuning, *job.outs[j].weight);
  if (most_splits(split) > 1)
    run_split(encoder, split);
  else
    run_matmul_unsplit(encoder, job);
}

void launch_matmul(MetalEncoder& encoder, const LinearJob& job) {
  const int64_t rows = rows_of_group(job.rows());
  Launch launch(encoder, kMatmul, linear_constants(job, u32(rows)));
  const int64_t tiles = bind_linear(launch, job, outputs_of_group(job));
  launch.threadgroup_memory(0, (rows + kOutputs) * kPitch * 4);
  launch.groups(tiles, ceil_div(job.rows(), rows), most_splits(job), kThreads);
}

bool tensor_ops_take(const LinearJob& job) {
  return !is_ragged(job) && (job.weight().quantised() || job.weight().data.dtype != DType::f32);
}

void launch_matmul_tensor(MetalEncoder& encoder, const LinearJob& job) {
  const int64_t rows = job.rows() <= 32 ? 32 : 64, in = job.weight().in;
  const int64_t padded_rows = round_up(job.rows(), rows), padded_in = round_up(in, kDepth);
  u32(padded_rows * padded_in);  // kernels index x by 32 bits
  const OpScratch scratch(encoder, {{DType::f16, {padded_rows, padded_in}}, {DType::f32, {padded_rows}}});
  const Tensor &x = scratch[0], &scale = scratch[1];
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
  launch.groups(tiles, padded_rows / rows, most_splits(job), kThreads);
}

}  // namespace saragossa::metal
