// Rows are sorted by expert; the tasks of a loop are chunks of outputs, expert by expert, so that each worker reads a
// share of the chosen experts' bytes from end to end. Few rows (decode) take the matvec form, x quantised once; of many
// rows each expert with more than 8 takes the matmul form. The down-projection leaves each place's part in `each`; who
// finishes the last expert of a chunk of outputs adds it up, row by row in the order of the row's experts.

#include "cpu/moe_engine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>

#include "cpu/linear_kernels.h"
#include "cpu/linear_stream.h"
#include "cpu/scratch.h"
#include "cpu/vector_kernels.h"

namespace saragossa::cpu {
namespace {

// Tuning: as of linears (linear_stream.cpp).
constexpr int64_t kTaskBytes = 16 * 1024;
constexpr int64_t kOutStep = 8;
constexpr int64_t kMatmulOuts = 32;
constexpr int64_t kPlaces = 4096;           // of a block of rows: bounds the workspace
constexpr int64_t kPackAlone = 128 * 1024;  // values that are quantised without the pool's help

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

int64_t outs_of_task(const Matrix& w) {
  return round_up(std::max<int64_t>(kTaskBytes / std::max<int64_t>(row_bytes_of(w), 1), 1), kOutStep);
}

/// The matrices of an expert (gate and up; down) and the rows that they multiply.
struct Part {
  ExpertRows rows;
  int n_w = 1;
  Matrix w[2];
  PackFormat format[2];
  const uint8_t* packed[2] = {};  // of quantised ones
  int64_t chunk = 0;              // outputs of a task
  int64_t first = 0;              // task
};

/// What a worker has asked for of its two streams of weights.
struct Stream {
  ThreadPool::Share share{};
  std::array<const uint8_t*, 2> asked{};
  std::array<WeightsAt, 2> next{};  // read behind the worker's share
};

struct alignas(64) Worker {
  Scratch tile, rows, matmul;
  Stream stream;
  uint64_t run = 0;  // that it took part in last
};

}  // namespace

struct MoeEngine::Impl {
  const LinearKernels& kernels;
  const VectorKernels& vectors;
  Activations activations;
  ThreadPool& pool;
  MoePlan plan;
  std::vector<Part> parts;
  int64_t tasks = 0;
  Scratch packed, each;
  struct Base {
    PackFormat format;
    Scratch rows;
  };
  std::array<Base, 4> bases;  // x quantised, for each format among gate, up and the shared ones
  size_t n_bases = 0;
  std::unique_ptr<std::atomic<int64_t>[]> left;  // of each chunk of outputs, experts that are not done
  int64_t left_size = 0;
  std::vector<Worker> workers;
  uint64_t run_number = 0;

  Impl(Isa isa, Activations a, ThreadPool& p)
      : kernels(linear_kernels(isa)),
        vectors(vector_kernels(isa)),
        activations(a),
        pool(p),
        workers(static_cast<size_t>(p.size())) {}

  /// As of linears: mxfp8 keeps float32 activations.
  bool quantised(const Matrix& w) const {
    return w.bits != 0 && activations != Activations::f32 && code_of(w) != kE4M3;
  }

  void sort(const MoeCall& c) {
    plan.sort(c.ids, c.rows, c.top_k, c.count, c.shared > 0, c.rows <= kMatvecRows ? kMatvecRows : kMatmulRows);
    parts.clear();
    tasks = 0;
  }

  void add_part(Part part, int64_t chunk) {
    const bool matmul = part.rows.n > kMatvecRows;
    for (int i = 0; i < part.n_w; ++i)
      part.format[i] = {activations, part.w[i].bits, part.w[i].group, part.w[i].in, matmul};
    part.chunk = round_up(chunk, kernels.matmul_outs);
    part.first = tasks;
    tasks += (part.w[0].out + part.chunk - 1) / part.chunk;
    parts.push_back(part);
  }

  size_t part_of(int64_t task) const {
    const auto after =
        std::upper_bound(parts.begin(), parts.end(), task, [](int64_t t, const Part& part) { return t < part.first; });
    return static_cast<size_t>(after - parts.begin()) - 1;
  }

  // --- quantised inputs -------------------------------------------------------------------------------------------

  /// The rows of each part, input(place) being one of them.
  template <class Input>
  void pack(const Input& input, bool rows_repeat) {
    if (rows_repeat) return pack_repeated(input);
    int64_t bytes = 0, values = 0;
    each_packed([&](Part& part, int i) {
      bytes += round_up(kernels.packed_bytes(part.format[i], part.rows.n), 64);
      values += part.rows.n * part.w[i].in;
    });
    uint8_t* at = packed.get(bytes);
    each_packed([&](Part& part, int i) {
      part.packed[i] = at;
      at += round_up(kernels.packed_bytes(part.format[i], part.rows.n), 64);
    });
    const auto pack_part = [&](int64_t p, int w) {
      Part& part = parts[static_cast<size_t>(p)];
      for (int i = 0; i < part.n_w; ++i)
        if (owns_packed(part, i)) pack_rows(part, i, input, workers[static_cast<size_t>(w)].rows);
      if (part.n_w == 2 && quantised(part.w[1]) && !owns_packed(part, 1)) part.packed[1] = part.packed[0];
    };
    const auto n = static_cast<int64_t>(parts.size());
    if (values > kPackAlone) return pool.run(n, pack_part);
    for (int64_t p = 0; p < n; ++p) pack_part(p, 0);
  }

  /// Gate and up share what they can.
  bool owns_packed(const Part& part, int i) const {
    return quantised(part.w[i]) && !(i == 1 && quantised(part.w[0]) && part.format[0] == part.format[1]);
  }
  template <class Fn>
  void each_packed(const Fn& fn) {
    for (Part& part : parts)
      for (int i = 0; i < part.n_w; ++i)
        if (owns_packed(part, i)) fn(part, i);
  }

  template <class Input>
  void pack_rows(const Part& part, int i, const Input& input, Scratch& rows) {
    const PackFormat& f = part.format[i];
    auto* to = const_cast<uint8_t*>(part.packed[i]);
    const int64_t step = f.matmul ? kernels.pack_rows : 1;
    for (int64_t r = 0; r < part.rows.n; r += step) {
      const int64_t n = std::min(step, part.rows.n - r);
      kernels.pack(f, gathered(part, r, n, input, rows), n, 0, n, to + kernels.packed_bytes(f, r));
    }
  }

  /// Rows [r, r + n) of a part one behind the other.
  template <class Input>
  const float* gathered(const Part& part, int64_t r, int64_t n, const Input& input, Scratch& rows) {
    const int64_t in = part.w[0].in, first = part.rows.begin + r;
    if (n == 1) return input(plan.place(first));
    float* to = rows.floats(n * in);
    for (int64_t i = 0; i < n; ++i) std::copy_n(input(plan.place(first + i)), in, to + i * in);
    return to;
  }

  /// Few rows that several experts take: each is quantised once, experts of several rows get copies side by side.
  template <class Input>
  void pack_repeated(const Input& input) {
    n_bases = 0;
    int64_t bytes = 0;
    const int64_t rows = plan.places() / plan.top_k();
    each_packed([&](Part& part, int i) {
      static_cast<void>(base_of(part.format[i], rows, input));
      bytes += part.rows.n * kernels.packed_bytes(part.format[i], 1);
    });
    uint8_t* at = packed.get(bytes);
    each_packed([&](Part& part, int i) {
      const uint8_t* base = base_of(part.format[i], rows, input);
      const int64_t row_bytes = kernels.packed_bytes(part.format[i], 1);
      const auto row = [&](int64_t r) { return base + plan.row(plan.place(part.rows.begin + r)) * row_bytes; };
      part.packed[i] = part.rows.n == 1 ? row(0) : at;
      for (int64_t r = 0; r < part.rows.n && part.rows.n > 1; ++r, at += row_bytes)
        std::memcpy(at, row(r), static_cast<size_t>(row_bytes));
    });
    for (Part& part : parts)
      if (part.n_w == 2 && quantised(part.w[1]) && !owns_packed(part, 1)) part.packed[1] = part.packed[0];
  }

  template <class Input>
  const uint8_t* base_of(const PackFormat& f, int64_t rows, const Input& input) {
    for (size_t i = 0; i < n_bases; ++i)
      if (bases[i].format == f) return bases[i].rows.get(0);
    Base& base = bases[n_bases++];
    base.format = f;
    const int64_t row_bytes = kernels.packed_bytes(f, 1);
    uint8_t* to = base.rows.get(rows * row_bytes);
    for (int64_t r = 0; r < rows; ++r) kernels.pack(f, input(r * plan.top_k()), 1, 0, 1, to + r * row_bytes);
    return to;
  }

  // --- one task ---------------------------------------------------------------------------------------------------

  /// Matrix i of a part times its rows into tile.
  template <class Input>
  void dot(const Part& part, int i, const OutTile& tile, const Input& input, Worker& worker) {
    const Matrix& w = part.w[i];
    const int64_t n = part.rows.n;
    if (!quantised(w)) {
      for (int64_t r = 0; r < n; r += kMatvecRows) {
        const int64_t rows = std::min(kMatvecRows, n - r);
        kernels.dot_f32(w, gathered(part, r, rows, input, worker.rows), rows,
                        {tile.begin, tile.end, tile.y + r * tile.stride, tile.stride, {}});
      }
      return;
    }
    const PackFormat& f = part.format[i];
    if (!f.matmul) return kernels.matvec_int(w, f, part.packed[i], n, tile);
    kernels.matmul_int(w, f, part.packed[i], n, tile, worker.matmul.get(kernels.matmul_scratch(f)));
  }

  /// The hints for outputs [begin, end) of matrix i of a part. The kernel must act on them.
  Upcoming upcoming(Stream& stream, int64_t task, size_t p, int i, int64_t begin, int64_t end) {
    const Part& part = parts[p];
    if (!quantised(part.w[i]) || part.format[i].matmul) return {};
    const uint8_t*& asked = stream.asked[static_cast<size_t>(i)];
    Upcoming up;
    up.asked = asked == weights_at(part.w[i], begin).data;
    up.end = end;
    asked = weights_at(part.w[i], end).data;
    if (task < stream.share.begin || task >= stream.share.end) return up;  // taken from another worker
    up.end = std::min(part.w[i].out, (stream.share.end - part.first) * part.chunk);
    const bool more = p + 1 < parts.size() && parts[p + 1].first < stream.share.end;
    up.after = more ? weights_at(parts[p + 1].w[i], 0) : stream.next[static_cast<size_t>(i)];
    if (end == up.end && up.after.data) asked = up.after.data;
    return up;
  }

  /// fn(part, begin, end, task, worker) for all chunks; next(worker) tells what a worker reads behind its share.
  template <class Next, class Fn>
  void run(const Next& next, const Fn& fn) {
    const uint64_t number = ++run_number;
    pool.run(tasks, [&](int64_t task, int w) {
      Worker& worker = workers[static_cast<size_t>(w)];
      if (worker.run != number) {
        worker.run = number;
        worker.stream.share = ThreadPool::share(tasks, w, pool.size());
        const FirstWeights first = next(w);
        worker.stream.next = {first.start, {}};
        pool.fetch_when_idle(w, first.soon);
      }
      const size_t p = part_of(task);
      const int64_t begin = (task - parts[p].first) * parts[p].chunk;
      fn(p, begin, std::min(begin + parts[p].chunk, parts[p].w[0].out), task, worker);
    });
  }

  // --- the ops ----------------------------------------------------------------------------------------------------

  void gated(const MoeGated& c) {
    sort(c);
    for (const ExpertRows& rows : plan.parts()) {
      const bool shared = rows.expert == c.count;
      Part part;
      part.rows = rows;
      part.n_w = 2;
      part.w[0] = shared ? c.shared_gate : c.gate.of(rows.expert);
      part.w[1] = shared ? c.shared_up : c.up.of(rows.expert);
      add_part(part, rows.n > kMatvecRows ? kMatmulOuts : outs_of_task(part.w[0]));
    }
    const auto input = [&](int64_t place) { return c.x + plan.row(place) * c.hidden; };
    pack(input, c.rows <= kMatvecRows);
    const auto output = [&](int64_t place) {
      return c.h + plan.row(place) * c.width() +
             (place < plan.places() ? place % c.top_k * c.inner : c.top_k * c.inner);
    };
    run([&](int w) { return first_of_down(c, w); },
        [&](size_t p, int64_t begin, int64_t end, int64_t task, Worker& worker) {
          const Part& part = parts[p];
          const int64_t n = end - begin;
          float* sums[2];
          sums[0] = worker.tile.floats(2 * part.rows.n * n);
          sums[1] = sums[0] + part.rows.n * n;
          for (int i = 0; i < 2; ++i)
            dot(part, i, {begin, end, sums[i], n, upcoming(worker.stream, task, p, i, begin, end)}, input, worker);
          for (int64_t r = 0; r < part.rows.n; ++r)
            vectors.act_mul(output(plan.place(part.rows.begin + r)) + begin, sums[0] + r * n, sums[1] + r * n, n,
                            c.act);
        });
  }

  int64_t down_chunk(const MoeCall& c, const Matrix& w) const {
    return round_up(c.rows > kMatvecRows ? kMatmulOuts : outs_of_task(w), kernels.matmul_outs);
  }

  /// What a worker will read first of the down-projection behind this op.
  FirstWeights first_of_down(const MoeGated& c, int worker) const {
    if (!c.down.all.data || c.rows > kMatvecRows) return {};
    const int64_t chunk = down_chunk(c, c.down.all), chunks = (c.down.rows + chunk - 1) / chunk;
    const auto share = ThreadPool::share(static_cast<int64_t>(parts.size()) * chunks, worker, pool.size());
    if (share.begin == share.end) return {};
    const ExpertRows& rows = parts[static_cast<size_t>(share.begin / chunks)].rows;
    if (rows.expert == c.count) return {};
    const Matrix w = c.down.of(rows.expert);
    const int64_t begin = share.begin % chunks * chunk;
    return {0, weights_at(w, begin), soon_of(w, begin, w.out)};
  }

  void down(const MoeDown& c) {
    sort(c);
    const int64_t chunk = down_chunk(c, c.down.all), chunks = (c.hidden + chunk - 1) / chunk;
    for (const ExpertRows& rows : plan.parts()) {
      Part part;
      part.rows = rows;
      part.w[0] = rows.expert == c.count ? c.shared_down : c.down.of(rows.expert);
      add_part(part, chunk);
    }
    if (left_size < chunks) left = std::make_unique<std::atomic<int64_t>[]>(static_cast<size_t>(left_size = chunks));
    for (int64_t i = 0; i < chunks; ++i) left[static_cast<size_t>(i)] = static_cast<int64_t>(parts.size());
    const auto input = [&](int64_t place) {
      return c.h + plan.row(place) * c.width() +
             (place < plan.places() ? place % c.top_k * c.inner : c.top_k * c.inner);
    };
    pack(input, false);
    float* sums = each.floats(plan.total() * c.hidden);
    run([&](int w) { return c.next ? first_weights(*c.next, kernels, pool.size(), w) : FirstWeights{}; },
        [&](size_t p, int64_t begin, int64_t end, int64_t task, Worker& worker) {
          const Part& part = parts[p];
          float* to = sums + part.rows.begin * c.hidden + begin;
          dot(part, 0, {begin, end, to, c.hidden, upcoming(worker.stream, task, p, 0, begin, end)}, input, worker);
          if (left[static_cast<size_t>(begin / chunk)].fetch_sub(1, std::memory_order_acq_rel) == 1)
            add_up(c, sums, begin, end);
        });
  }

  /// Outputs [begin, end) of all rows, all experts being done.
  void add_up(const MoeDown& c, const float* sums, int64_t begin, int64_t end) {
    for (int64_t t = 0; t < c.rows; ++t) {
      float* y = c.y + t * c.hidden;
      std::array<float, 64> sum;
      for (int64_t o = begin; o < end; o += 64) {
        const int64_t n = std::min<int64_t>(64, end - o);
        std::fill_n(sum.begin(), n, 0.0f);
        const auto add = [&](int64_t place, float weight) {
          const float* part = sums + plan.position(place) * c.hidden + o;
          for (int64_t i = 0; i < n; ++i) sum[static_cast<size_t>(i)] += weight * part[i];
        };
        for (int64_t k = 0; k < c.top_k; ++k) add(t * c.top_k + k, c.weights[t * c.top_k + k]);
        if (c.shared > 0) add(plan.places() + t, c.gate ? sigmoid(c.gate[t]) : 1.0f);
        for (int64_t i = 0; i < n; ++i)
          y[o + i] = c.add ? y[o + i] + sum[static_cast<size_t>(i)] : sum[static_cast<size_t>(i)];
      }
    }
  }
};

MoeEngine::MoeEngine(Isa isa, Activations activations, ThreadPool& pool)
    : impl_(std::make_unique<Impl>(isa, activations, pool)) {}

MoeEngine::~MoeEngine() = default;

namespace {

int64_t rows_of_block(const MoeCall& c) { return std::max(kMatvecRows, kPlaces / (c.top_k + 1)); }

}  // namespace

void MoeEngine::gated(const MoeGated& call) {
  const int64_t step = rows_of_block(call);
  for (int64_t r = 0; r < call.rows; r += step) {
    MoeGated block = call;
    block.rows = std::min(step, call.rows - r);
    block.ids += r * call.top_k;
    block.x += r * call.hidden;
    block.h += r * call.width();
    impl_->gated(block);
  }
}

void MoeEngine::down(const MoeDown& call) {
  const int64_t step = rows_of_block(call);
  for (int64_t r = 0; r < call.rows; r += step) {
    MoeDown block = call;
    block.rows = std::min(step, call.rows - r);
    block.ids += r * call.top_k;
    block.weights += r * call.top_k;
    block.h += r * call.width();
    block.y += r * call.hidden;
    if (block.gate) block.gate += r;
    impl_->down(block);
  }
}

}  // namespace saragossa::cpu
