#include "cpu/gated_delta.h"

#include <array>
#include <cmath>
#include <cstring>

#include "cpu/cpu_encoder.h"
#include "cpu/tasks.h"

namespace saragossa::cpu {
namespace {

/// Runs of a batch and the slots of their states, as raw pointers.
struct Runs {
  const int32_t* starts;
  const int32_t* sequence;
  const int32_t* in;
  const int32_t* out;
  int64_t count, rows, sequences, slots;

  Runs(const Batch& b, int64_t states)
      : starts(raw_data<int32_t>(b.run_starts)),
        sequence(raw_data<int32_t>(b.sequence)),
        in(raw_data<int32_t>(b.state_in)),
        out(raw_data<int32_t>(b.state_out)),
        count(static_cast<int64_t>(b.runs.size())),
        rows(b.tokens()),
        sequences(b.state_in.shape[0]),
        slots(states) {}

  /// Throws for what lies outside; called before workers start.
  void check() const {
    require(starts[0] == 0 && starts[count] == rows, "batch: runs end at row ", starts[count], " of ", rows);
    for (int64_t r = 0; r < count; ++r) {
      require(starts[r] < starts[r + 1], "batch: run ", r, " has no rows");
      const int32_t s = sequence[starts[r]];
      require(s >= 0 && s < sequences, "batch: sequence ", s, " of ", sequences);
      require(in[s] >= -1 && in[s] < slots, "batch: state ", in[s], " of ", slots);
      for (int64_t t = starts[r]; t < starts[r + 1]; ++t)
        require(out[t] == -1 || (out[t] >= 0 && out[t] < slots &&
                                 (starts[r + 1] - starts[r] <= kMostKeptRows || t == starts[r + 1] - 1)),
                "batch: state ", out[t], " of ", slots, " for row ", t - starts[r], " of a run of ",
                starts[r + 1] - starts[r]);
    }
  }
  /// Slot that a run starts from, -1: zeros.
  int32_t first(int64_t run) const { return in[sequence[starts[run]]]; }
};

constexpr int64_t kSerialWork = 32 * 1024;  // floats

/// The convolution, then the norms of q and k heads where there are heads.
struct ConvCall {
  float* y;
  const float* x;
  const float* w;
  float* states;
  int64_t n, width;
  Runs runs;
  DeltaHeads heads;  // none: no norms

  ConvCall(const Tensor& to, const Tensor& from, const Tensor& weights, const RecurrentLayer& state, const Batch& batch)
      : y(raw_data<float>(to)),
        x(raw_data<float>(from)),
        w(raw_data<float>(weights)),
        states(raw_data<float>(state.conv)),
        n(from.shape[1]),
        width(weights.shape[1]),
        runs(batch, state.conv.shape[0]) {}

  /// Channels of a task: whole heads, about as many as the first cache holds the rows of.
  int64_t block() const {
    constexpr int64_t kBlock = 512;
    return heads.key_dim > 0 ? (kBlock + heads.key_dim - 1) / heads.key_dim * heads.key_dim : kBlock;
  }

  void operator()(Executor& ex) const {
    runs.check();
    const int64_t size = block(), tasks = (n + size - 1) / size;
    ex.delta.work.resize(static_cast<size_t>(ex.pool.size()));
    each(ex.pool, runs.rows * n * width <= kSerialWork, tasks, [&](int64_t task, int worker) {
      const int64_t begin = task * size, count = std::min(size, n - begin);
      // The packed weights; the window in front of a run, which a row of the run may overwrite.
      float* packed = sized(ex.delta.work[static_cast<size_t>(worker)], (2 * width - 1) * size);
      ex.kernels.delta.pack_conv(packed, w + begin * width, width, count);
      for (int64_t r = 0; r < runs.count; ++r) run(ex.kernels, r, begin, count, packed, packed + width * count);
    });
  }

  void run(const VectorKernels& kernels, int64_t r, int64_t begin, int64_t count, const float* packed,
           float* window) const {
    const int64_t kept = width - 1, first = runs.starts[r];
    const auto bytes = static_cast<size_t>(count) * sizeof(float);
    const int32_t slot = runs.first(r);
    for (int64_t j = 0; j < kept; ++j) {
      if (slot < 0)
        std::fill_n(window + j * count, count, 0.0f);
      else
        std::memcpy(window + j * count, states + (slot * kept + j) * n + begin, bytes);
    }
    std::array<const float*, kMostConvWidth> rows{};
    for (int64_t t = first; t < runs.starts[r + 1]; ++t) {
      for (int64_t j = 0; j < width; ++j) {
        const int64_t from = t - kept + j;  // row of the batch; in front of the run: of the window
        rows[static_cast<size_t>(j)] = from >= first ? x + from * n + begin : window + (from - first + kept) * count;
      }
      float* to = y + t * n + begin;
      kernels.delta.conv(to, rows.data(), packed, width, count);
      norms(kernels, to, begin, count);
      if (runs.out[t] < 0) continue;
      for (int64_t j = 0; j < kept; ++j)
        std::memcpy(states + (runs.out[t] * kept + j) * n + begin, rows[static_cast<size_t>(j + 1)], bytes);
    }
  }

  void norms(const VectorKernels& kernels, float* row, int64_t begin, int64_t count) const {
    for (int64_t c = begin; c < std::min(begin + count, 2 * heads.keys()); c += heads.key_dim)
      kernels.delta.l2_norm(row + c - begin, q_factor(c), heads.key_dim);
  }
  float q_factor(int64_t channel) const {
    return channel < heads.keys() ? 1.0f / std::sqrt(static_cast<float>(heads.key_dim)) : 1.0f;
  }
};

/// The delta rule, then the gated norm where there is one.
struct DeltaCall {
  float* y;
  const float* qkv;
  const float* a;
  const float* b;
  const float* a_log;
  const float* dt_bias;
  float* states;
  DeltaHeads heads;
  Runs runs;
  const float* z = nullptr;  // none: no norm
  const float* norm = nullptr;
  float eps = 0.0f;

  DeltaCall(const Tensor& to, const Tensor& from, const DeltaGates& gates, const DeltaHeads& h,
            const RecurrentLayer& state, const Batch& batch)
      : y(raw_data<float>(to)),
        qkv(raw_data<float>(from)),
        a(raw_data<float>(gates.a)),
        b(raw_data<float>(gates.b)),
        a_log(raw_data<float>(gates.a_log)),
        dt_bias(raw_data<float>(gates.dt_bias)),
        states(raw_data<float>(state.delta)),
        heads(h),
        runs(batch, state.delta.shape[0]) {}

  struct Part {
    int64_t run, head, begin, end;  // value rows [begin, end)
  };
  struct Gates {
    const float* decay;
    const float* beta;
  };

  float* state(int64_t slot, int64_t head, int64_t value) const {
    return states + ((slot * heads.value_heads + head) * heads.value_dim + value) * heads.key_dim;
  }
  const float* key(int64_t t, int64_t head) const {
    return qkv + t * heads.channels() + heads.keys() + head / (heads.value_heads / heads.key_heads) * heads.key_dim;
  }
  const float* query(int64_t t, int64_t head) const { return key(t, head) - heads.keys(); }
  const float* value(int64_t t, int64_t head) const {
    return qkv + t * heads.channels() + 2 * heads.keys() + head * heads.value_dim;
  }
  float* out(int64_t t, int64_t head) const { return y + t * heads.values() + head * heads.value_dim; }

  void operator()(Executor& ex) const {
    runs.check();
    const auto workers = static_cast<size_t>(ex.pool.size());
    ex.delta.state.resize(workers);
    ex.delta.work.resize(workers);
    const Gates gates = fill_gates(ex);
    // Whole heads where they divide among the threads; else slices of their value rows.
    const int64_t tasks = runs.count * heads.value_heads, threads = ex.pool.size();
    const bool whole = tasks % threads == 0 || tasks >= 4 * threads;
    const int64_t slices = whole ? 1 : (heads.value_dim + kDeltaSlice - 1) / kDeltaSlice;
    const bool serial = runs.rows * heads.values() * heads.key_dim <= kSerialWork;
    each(ex.pool, serial, tasks * slices, [&](int64_t task, int worker) {
      const int64_t slice = task % slices, head = task / slices % heads.value_heads;
      Part part{task / slices / heads.value_heads, head, 0, heads.value_dim};
      if (slices > 1) {
        part.begin = slice * kDeltaSlice;
        part.end = std::min(heads.value_dim, part.begin + kDeltaSlice);
      }
      run(ex, gates, part, static_cast<size_t>(worker));
      if (z && slices == 1) norms(ex.kernels, part.head, runs.starts[part.run], runs.starts[part.run + 1]);
    });
    if (z && slices > 1)
      ex.rows(runs.rows, heads.values(), [&](int64_t begin, int64_t end) {
        for (int64_t head = 0; head < heads.value_heads; ++head) norms(ex.kernels, head, begin, end);
      });
  }

  Gates fill_gates(Executor& ex) const {
    const int64_t n = heads.value_heads;
    float* decay = sized(ex.delta.gates, 2 * runs.rows * n);
    float* beta = decay + runs.rows * n;
    ex.rows(runs.rows, 8 * n, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin * n; t < end * n; t += n)
        ex.kernels.delta.gates(decay + t, beta + t, a + t, b + t, a_log, dt_bias, n);
    });
    return {decay, beta};
  }

  void run(Executor& ex, const Gates& gates, const Part& part, size_t worker) const {
    const int32_t slot = runs.first(part.run);
    const float* from = slot < 0 ? nullptr : state(slot, part.head, part.begin);
    int64_t t = runs.starts[part.run];
    const int64_t chunks = (runs.starts[part.run + 1] - t) / kDeltaChunk;
    float* scratch = sized(ex.delta.state[worker], heads.value_dim * heads.key_dim);
    if (ex.chunked_delta && ex.kernels.delta.chunks && chunks > 0) {
      const int32_t last = runs.out[runs.starts[part.run + 1] - 1];
      float* to = last < 0 ? scratch : state(last, part.head, part.begin);
      run_chunks(ex, gates, part, {to, from, chunks, t}, worker);
      from = to;
      t += chunks * kDeltaChunk;
    }
    if (t < runs.starts[part.run + 1]) run_rows(ex.kernels, gates, part, t, from, scratch);
  }

  struct Stretch {
    float* to;
    const float* from;
    int64_t chunks, row;
  };
  void run_chunks(Executor& ex, const Gates& gates, const Part& part, const Stretch& s, size_t worker) const {
    DeltaChunks c;
    c.to = s.to;
    c.from = s.from;
    c.q = query(s.row, part.head);
    c.k = key(s.row, part.head);
    c.v = value(s.row, part.head) + part.begin;
    c.stride = heads.channels();
    c.y = out(s.row, part.head) + part.begin;
    c.y_stride = heads.values();
    c.decay = gates.decay + s.row * heads.value_heads + part.head;
    c.beta = gates.beta + s.row * heads.value_heads + part.head;
    c.gate_stride = heads.value_heads;
    c.count = s.chunks;
    c.rows = part.end - part.begin;
    c.key_dim = heads.key_dim;
    ex.kernels.delta.chunks(c, sized(ex.delta.work[worker], delta_chunk_work(c.rows, c.key_dim)));
  }

  /// Rows [first, end of the run): slice after slice, so that a slice's state stays in the first cache.
  void run_rows(const VectorKernels& kernels, const Gates& gates, const Part& part, int64_t first, const float* begin,
                float* scratch) const {
    for (int64_t i = part.begin; i < part.end; i += kDeltaSlice) {
      DeltaStep s;
      s.rows = std::min(kDeltaSlice, part.end - i);
      s.key_dim = heads.key_dim;
      s.from = begin ? begin + (i - part.begin) * heads.key_dim : nullptr;
      for (int64_t t = first; t < runs.starts[part.run + 1]; ++t) {
        s.to = runs.out[t] < 0 ? scratch + (i - part.begin) * heads.key_dim : state(runs.out[t], part.head, i);
        if (!s.from) {
          std::fill_n(s.to, s.rows * s.key_dim, 0.0f);
          s.from = s.to;
        }
        s.q = query(t, part.head);
        s.k = key(t, part.head);
        s.v = value(t, part.head) + i;
        s.y = out(t, part.head) + i;
        s.decay = gates.decay[t * heads.value_heads + part.head];
        s.beta = gates.beta[t * heads.value_heads + part.head];
        kernels.delta.step(s);
        s.from = s.to;
      }
    }
  }

  void norms(const VectorKernels& kernels, int64_t head, int64_t begin, int64_t end) const {
    for (int64_t t = begin; t < end; ++t) {
      float* row = out(t, head);
      kernels.rms_norm(row, row, norm, eps, heads.value_dim);
      kernels.act_mul(row, z + t * heads.values() + head * heads.value_dim, row, heads.value_dim, Activation::silu);
    }
  }
};

}  // namespace

int64_t delta_chunk_work(int64_t rows, int64_t key_dim) {
  const int64_t keys = padded(key_dim), values = padded(rows), c = kDeltaChunk;
  return keys * values + c * (3 * keys + 2 * values + 2 * c + 2);  // as struct Chunk takes them
}

void CpuEncoder::do_causal_conv(const Tensor& y, const Tensor& x, const Tensor& w, const RecurrentLayer& state,
                                const Batch& batch) {
  push(ConvCall(y, x, w, state, batch));
}

void CpuEncoder::do_conv_qk_norm(const Tensor& y, const Tensor& x, const Tensor& w, const DeltaHeads& heads,
                                 const RecurrentLayer& state, const Batch& batch) {
  ConvCall call(y, x, w, state, batch);
  call.heads = heads;
  push(call);
}

void CpuEncoder::do_qk_l2_norm(const Tensor& x, const DeltaHeads& heads) {
  push([x = raw_data<float>(x), rows = x.shape[0], heads](Executor& ex) {
    ex.rows(rows, 2 * heads.keys(), [&](int64_t begin, int64_t end) {
      const float q_factor = 1.0f / std::sqrt(static_cast<float>(heads.key_dim));
      for (int64_t t = begin; t < end; ++t)
        for (int64_t h = 0; h < 2 * heads.key_heads; ++h)
          ex.kernels.delta.l2_norm(x + t * heads.channels() + h * heads.key_dim, h < heads.key_heads ? q_factor : 1.0f,
                                   heads.key_dim);
    });
  });
}

void CpuEncoder::do_delta_rule(const Tensor& y, const Tensor& qkv, const DeltaGates& gates, const DeltaHeads& heads,
                               const RecurrentLayer& state, const Batch& batch) {
  push(DeltaCall(y, qkv, gates, heads, state, batch));
}

void CpuEncoder::do_delta_rule_norm(const Tensor& y, const Tensor& qkv, const DeltaGates& gates,
                                    const DeltaHeads& heads, const Tensor& z, const Tensor& w, float eps,
                                    const RecurrentLayer& state, const Batch& batch) {
  DeltaCall call(y, qkv, gates, heads, state, batch);
  call.z = raw_data<float>(z);
  call.norm = raw_data<float>(w);
  call.eps = eps;
  push(call);
}

void CpuEncoder::do_gated_norm(const Tensor& x, const Tensor& z, const Tensor& w, float eps) {
  push([x = raw_data<float>(x), z = raw_data<float>(z), w = raw_data<float>(w), n = w.shape[0],
        heads = x.numel() / w.shape[0], eps](Executor& ex) {
    ex.rows(heads, n, [&](int64_t begin, int64_t end) {
      for (int64_t h = begin; h < end; ++h) {
        ex.kernels.rms_norm(x + h * n, x + h * n, w, eps, n);
        ex.kernels.act_mul(x + h * n, z + h * n, x + h * n, n, Activation::silu);
      }
    });
  });
}

}  // namespace saragossa::cpu
