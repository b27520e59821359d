#include "cpu/linear.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "cpu/linear_codes.h"
#include "cpu/linear_kernels.h"
#include "cpu/linear_stream.h"
#include "cpu/scratch.h"
#include "cpu/vector_kernels.h"

namespace saragossa::cpu {
namespace {

void add_bias(const LinearJob::Out& out, const OutTile& tile, int64_t rows) {
  if (!out.bias) return;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t o = tile.begin; o < tile.end; ++o) tile.y[r * tile.stride + o - tile.begin] += out.bias[o];
}

}  // namespace

const LinearKernels& linear_kernels(Isa isa) {
  switch (isa) {
    case Isa::scalar: return scalar::linear_kernels();
#if defined(__x86_64__)
    case Isa::avx2: return avx2::linear_kernels();
    case Isa::avx512: return avx512::linear_kernels();
#elif defined(__aarch64__)
    case Isa::neon: return neon::linear_kernels();
#endif
    default: return scalar::linear_kernels();
  }
}

Matrix matrix_of(const Weight& w) {
  Matrix m;
  m.out = w.out;
  m.in = w.in;
  m.bits = w.bits;
  m.group = w.group;
  m.dtype = w.stored();
  m.data = raw_data<const uint8_t>(w.data);
  if (w.quantised()) {
    m.scales = raw_data<const uint8_t>(w.scales);
    m.biases = w.biases ? raw_data<const uint8_t>(w.biases) : m.scales;
  }
  return m;
}

struct LinearEngine::Impl {
  const LinearKernels& kernels;
  const VectorKernels& vectors;
  Activations activations;
  ThreadPool& pool;

  struct Packed {
    PackFormat format;
    Scratch bytes;
  };
  Packed packed[kLinearOuts];  // one for each format among a job's outputs
  int n_packed = 0;
  struct alignas(64) Worker {
    Scratch tile;    // results before the epilogue
    Scratch matmul;  // the kernel's
    WeightStream stream;
    uint64_t run = 0;  // that it took part in last
  };
  std::vector<Worker> workers;
  uint64_t run_number = 0;

  Impl(Isa isa, Activations a, ThreadPool& p)
      : kernels(linear_kernels(isa)),
        vectors(vector_kernels(isa)),
        activations(a),
        pool(p),
        workers(static_cast<size_t>(p.size())) {}

  /// Whether integers multiply it. E4M3 is no small integer: mxfp8 keeps float32 activations.
  bool quantised(const Matrix& w) const {
    return w.bits != 0 && activations != Activations::f32 && code_of(w) != kE4M3;
  }

  PackFormat format_of(const Matrix& w, int64_t rows) const {
    return {activations, w.bits, w.group, w.in, rows > kMatvecRows};
  }

  const uint8_t* packed_for(const PackFormat& format) {
    for (int i = 0; i < n_packed; ++i)
      if (packed[i].format == format) return packed[i].bytes.get(0);
    return nullptr;
  }

  /// Packs x once for each format that the outputs need.
  void pack(const LinearJob& job) {
    n_packed = 0;
    for (int i = 0; i < job.n_outs; ++i) {
      const Matrix& w = job.outs[i].w;
      if (!quantised(w) || packed_for(format_of(w, job.rows))) continue;
      Packed& to = packed[n_packed++];
      to.format = format_of(w, job.rows);
      uint8_t* bytes = to.bytes.get(kernels.packed_bytes(to.format, job.rows));
      const int64_t step = to.format.matmul ? round_up(8, kernels.pack_rows) : kMatvecRows;
      pool.run((job.rows + step - 1) / step, [&](int64_t task, int) {
        kernels.pack(to.format, job.x, job.rows, task * step, std::min(job.rows, (task + 1) * step), bytes);
      });
    }
  }

  void dot(const LinearJob& job, int which, const OutTile& tile, Worker& worker) {
    const Matrix& w = job.outs[which].w;
    if (!quantised(w)) {
      for (int64_t r = 0; r < job.rows; r += kMatvecRows)
        kernels.dot_f32(w, job.x + r * w.in, std::min(kMatvecRows, job.rows - r),
                        {tile.begin, tile.end, tile.y + r * tile.stride, tile.stride, tile.upcoming});
      return;
    }
    const PackFormat format = format_of(w, job.rows);
    const uint8_t* bytes = packed_for(format);
    if (!format.matmul) {
      kernels.matvec_int(w, format, bytes, job.rows, tile);
      return;
    }
    kernels.matmul_int(w, format, bytes, job.rows, tile, worker.matmul.get(kernels.matmul_scratch(format)));
  }

  void run_task(const LinearJob& job, const LinearPlan& plan, int64_t task, Worker& worker) {
    const int which = plan.output(task);
    const LinearJob::Out& out = job.outs[which];
    const int64_t begin = plan.begin(which, task);
    const int64_t end = std::min(begin + plan.chunk[which], out.w.out);
    const int64_t n = end - begin;
    const auto tile = [&](int i, float* y, int64_t stride) {
      OutTile t{begin, end, y, stride, {}};
      if (job.rows <= kMatvecRows && quantised(job.outs[i].w))
        t.upcoming = worker.stream.tile(job, plan, task, i, begin, end);
      return t;
    };
    const OutTile direct = tile(which, out.y + begin, out.w.out);
    if (job.epilogue == LinearEpilogue::store) {
      dot(job, which, direct, worker);
      add_bias(out, direct, job.rows);
      return;
    }
    auto* scratch_y = reinterpret_cast<float*>(worker.tile.get(job.rows * n * static_cast<int64_t>(sizeof(float))));
    if (job.epilogue == LinearEpilogue::add) {
      OutTile side = direct;
      side.y = scratch_y;
      side.stride = n;
      dot(job, which, side, worker);
      add_bias(out, side, job.rows);
      for (int64_t r = 0; r < job.rows; ++r)
        for (int64_t i = 0; i < n; ++i) direct.y[r * direct.stride + i] += side.y[r * n + i];
      return;
    }
    dot(job, which, direct, worker);
    add_bias(out, direct, job.rows);
    const OutTile side = tile(1, scratch_y, n);
    dot(job, 1, side, worker);
    add_bias(job.outs[1], side, job.rows);
    for (int64_t r = 0; r < job.rows; ++r)
      vectors.act_mul(direct.y + r * direct.stride, direct.y + r * direct.stride, side.y + r * n, n, job.act);
  }

  void run_rows(const LinearJob& job) {
    pack(job);
    const LinearPlan plan(job, kernels, pool.size());
    const uint64_t number = ++run_number;
    pool.run(plan.tasks(), [&](int64_t task, int w) {
      Worker& worker = workers[static_cast<size_t>(w)];
      if (worker.run != number) {
        worker.run = number;
        if (job.rows <= kMatvecRows) pool.fetch_when_idle(w, worker.stream.open(job, plan, kernels, pool.size(), w));
      }
      run_task(job, plan, task, worker);
    });
  }
};

LinearEngine::LinearEngine(Isa isa, Activations activations, ThreadPool& pool)
    : impl_(std::make_unique<Impl>(isa, activations, pool)) {}

LinearEngine::~LinearEngine() = default;

void LinearEngine::run(const LinearJob& job) {
  require(job.n_outs >= 1 && job.n_outs <= kLinearOuts, "linear: ", job.n_outs, " outputs, 1 to ", kLinearOuts,
          " are supported");
  require(job.epilogue != LinearEpilogue::gated || (job.n_outs == 2 && job.outs[0].w.out == job.outs[1].w.out),
          "linear: a gated job has two outputs of one size");
  for (int i = 1; i < job.n_outs; ++i) require(job.outs[i].w.in == job.outs[0].w.in, "linear: inputs differ in size");
  // Long inputs go in blocks: the workspace has a bound.
  for (int64_t r = 0; r < job.rows; r += kMatmulRows) {
    LinearJob block = job;
    block.rows = std::min(kMatmulRows, job.rows - r);
    block.x = job.x + r * job.outs[0].w.in;
    for (int i = 0; i < job.n_outs; ++i)
      if (block.outs[i].y) block.outs[i].y += r * job.outs[i].w.out;
    impl_->run_rows(block);
  }
}

void LinearEngine::dequantize_row(const Matrix& w, int64_t row, float scale, float* y) const {
  for (int64_t k = 0; k < w.in; ++k) y[k] = weight_at(w, row, k) * scale;
}

}  // namespace saragossa::cpu
