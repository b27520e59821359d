// The gated delta net on the CPU: convolution, norms, the delta rule as a sequence.

#include <cmath>
#include <cstring>

#include "cpu/cpu_encoder.h"

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

  /// Slot that a run starts from, -1: zeros. Throws for what lies outside; called before workers start.
  void check() const {
    require(starts[0] == 0 && starts[count] == rows, "batch: runs end at row ", starts[count], " of ", rows);
    for (int64_t r = 0; r < count; ++r) {
      require(starts[r] < starts[r + 1], "batch: run ", r, " has no rows");
      const int32_t s = sequence[starts[r]];
      require(s >= 0 && s < sequences, "batch: sequence ", s, " of ", sequences);
      require(in[s] >= -1 && in[s] < slots, "batch: state ", in[s], " of ", slots);
    }
    for (int64_t t = 0; t < rows; ++t) require(out[t] >= -1 && out[t] < slots, "batch: state ", out[t], " of ", slots);
  }
  int32_t first(int64_t run) const { return in[sequence[starts[run]]]; }
};

float silu(float x) { return x / (1.0f + std::exp(-x)); }
float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

}  // namespace

void CpuEncoder::do_causal_conv(const Tensor& y, const Tensor& x, const Tensor& w, const RecurrentLayer& state,
                                const Batch& batch) {
  push([y = raw_data<float>(y), x = raw_data<float>(x), w = raw_data<float>(w), n = x.shape[1], width = w.shape[1],
        states = raw_data<float>(state.conv), runs = Runs(batch, state.conv.shape[0])](Executor& ex) {
    runs.check();
    const int64_t kept = width - 1;
    ex.rows(n, runs.rows * width, [&](int64_t begin, int64_t end) {
      std::vector<float> window(static_cast<size_t>(kept + 1));
      for (int64_t r = 0; r < runs.count; ++r) {
        for (int64_t c = begin; c < end; ++c) {
          // One channel at a time: its window is read before any slot gets the new one.
          const int32_t slot = runs.first(r);
          for (int64_t j = 0; j < kept; ++j)
            window[static_cast<size_t>(j)] = slot < 0 ? 0.0f : states[(slot * kept + j) * n + c];
          for (int64_t t = runs.starts[r]; t < runs.starts[r + 1]; ++t) {
            window[static_cast<size_t>(kept)] = x[t * n + c];
            float sum = 0.0f;
            for (int64_t j = 0; j < width; ++j) sum += window[static_cast<size_t>(j)] * w[c * width + j];
            y[t * n + c] = silu(sum);
            for (int64_t j = 0; j < kept; ++j) window[static_cast<size_t>(j)] = window[static_cast<size_t>(j + 1)];
            if (runs.out[t] < 0) continue;
            for (int64_t j = 0; j < kept; ++j)
              states[(runs.out[t] * kept + j) * n + c] = window[static_cast<size_t>(j)];
          }
        }
      }
    });
  });
}

void CpuEncoder::do_qk_l2_norm(const Tensor& x, const DeltaHeads& heads) {
  push([x = raw_data<float>(x), rows = x.shape[0], heads](Executor& ex) {
    ex.rows(rows, 2 * heads.keys(), [&](int64_t begin, int64_t end) {
      const float scale = 1.0f / std::sqrt(static_cast<float>(heads.key_dim));
      for (int64_t t = begin; t < end; ++t) {
        for (int64_t h = 0; h < 2 * heads.key_heads; ++h) {
          float* head = x + t * heads.channels() + h * heads.key_dim;
          float squares = 0.0f;
          for (int64_t i = 0; i < heads.key_dim; ++i) squares += head[i] * head[i];
          const float factor = (h < heads.key_heads ? scale : 1.0f) / std::sqrt(squares + 1e-6f);
          for (int64_t i = 0; i < heads.key_dim; ++i) head[i] *= factor;
        }
      }
    });
  });
}

void CpuEncoder::do_delta_rule(const Tensor& y, const Tensor& qkv, const DeltaGates& gates, const DeltaHeads& heads,
                               const RecurrentLayer& state, const Batch& batch) {
  push([y = raw_data<float>(y), qkv = raw_data<float>(qkv), a = raw_data<float>(gates.a), b = raw_data<float>(gates.b),
        a_log = raw_data<float>(gates.a_log), dt_bias = raw_data<float>(gates.dt_bias), heads,
        states = raw_data<float>(state.delta), runs = Runs(batch, state.delta.shape[0])](Executor& ex) {
    runs.check();
    const int64_t matrix = heads.value_dim * heads.key_dim;
    ex.rows(heads.value_heads, runs.rows * matrix, [&](int64_t begin, int64_t end) {
      std::vector<float> s(static_cast<size_t>(matrix));
      for (int64_t r = 0; r < runs.count; ++r) {
        for (int64_t h = begin; h < end; ++h) {
          const int64_t key_head = h / (heads.value_heads / heads.key_heads);
          const int32_t slot = runs.first(r);
          if (slot < 0)
            std::fill(s.begin(), s.end(), 0.0f);
          else
            std::copy_n(states + (slot * heads.value_heads + h) * matrix, matrix, s.begin());
          for (int64_t t = runs.starts[r]; t < runs.starts[r + 1]; ++t) {
            const float* q = qkv + t * heads.channels() + key_head * heads.key_dim;
            const float* k = q + heads.keys();
            const float* v = qkv + t * heads.channels() + 2 * heads.keys() + h * heads.value_dim;
            const int64_t gate = t * heads.value_heads + h;
            const float decay = std::exp(-std::exp(a_log[h]) * softplus(a[gate] + dt_bias[h]));
            const float beta = sigmoid(b[gate]);
            for (int64_t i = 0; i < heads.value_dim; ++i) {
              float* row = s.data() + i * heads.key_dim;
              float held = 0.0f;
              for (int64_t j = 0; j < heads.key_dim; ++j) {
                row[j] *= decay;
                held += row[j] * k[j];
              }
              const float delta = beta * (v[i] - held);
              float out = 0.0f;
              for (int64_t j = 0; j < heads.key_dim; ++j) {
                row[j] += delta * k[j];
                out += row[j] * q[j];
              }
              y[t * heads.values() + h * heads.value_dim + i] = out;
            }
            if (runs.out[t] >= 0)
              std::copy_n(s.begin(), matrix, states + (runs.out[t] * heads.value_heads + h) * matrix);
          }
        }
      }
    });
  });
}

void CpuEncoder::do_gated_norm(const Tensor& x, const Tensor& z, const Tensor& w, float eps) {
  push([x = raw_data<float>(x), z = raw_data<float>(z), w = raw_data<float>(w), n = w.shape[0],
        heads = x.numel() / w.shape[0], eps](Executor& ex) {
    ex.rows(heads, n, [&](int64_t begin, int64_t end) {
      for (int64_t h = begin; h < end; ++h) {
        ex.kernels.rms_norm(x + h * n, x + h * n, w, eps, n);
        for (int64_t i = 0; i < n; ++i) x[h * n + i] *= silu(z[h * n + i]);
      }
    });
  });
}

}  // namespace saragossa::cpu
