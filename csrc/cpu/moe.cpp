// Mixtures of experts on the CPU: the router, and experts as linears of the rows that chose them.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "cpu/cpu_encoder.h"

namespace saragossa::cpu {
namespace {

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

/// Rows [begin, begin + count) of a matrix.
Matrix rows_of(Matrix m, int64_t begin, int64_t count) {
  m.out = count;
  m.data += begin * row_bytes_of(m);
  if (m.bits) {
    const int64_t groups = m.in / m.group * size_of(m.dtype);
    m.scales += begin * groups;
    m.biases += begin * groups;
  }
  return m;
}

struct ExpertRows {
  Matrix all;
  int64_t stride, offset, rows;

  ExpertRows(const ExpertWeight& e, int64_t n)
      : all(matrix_of(e.weight)), stride(e.stride), offset(e.offset), rows(n) {}
  Matrix of(int64_t expert) const { return rows_of(all, expert * stride + offset, rows); }
};

/// Places (row * top_k + choice) of each expert, in order.
std::vector<std::vector<int64_t>> places_of(const int32_t* ids, int64_t places, int64_t count) {
  std::vector<std::vector<int64_t>> out(static_cast<size_t>(count));
  for (int64_t p = 0; p < places; ++p) {
    require(ids[p] >= 0 && ids[p] < count, "moe: expert ", ids[p], " of ", count);
    out[static_cast<size_t>(ids[p])].push_back(p);
  }
  return out;
}

}  // namespace

void CpuEncoder::do_route(const Routes& routes, const Tensor& logits, bool renormalize, const Tensor& expert_scale) {
  push([ids = raw_data<int32_t>(routes.ids), weights = raw_data<float>(routes.weights), x = raw_data<float>(logits),
        scale = expert_scale ? raw_data<float>(expert_scale) : nullptr, rows = logits.shape[0], n = logits.shape[1],
        top_k = routes.ids.shape[1], renormalize](Executor& ex) {
    ex.rows(rows, 4 * n, [&](int64_t begin, int64_t end) {
      std::vector<int32_t> order(static_cast<size_t>(n));
      for (int64_t t = begin; t < end; ++t) {
        const float* row = x + t * n;
        int32_t* id = ids + t * top_k;
        float* weight = weights + t * top_k;
        std::iota(order.begin(), order.end(), 0);
        if (std::any_of(row, row + n, [](float v) { return std::isnan(v); })) {
          std::copy_n(order.begin(), top_k, id);
          std::fill_n(weight, top_k, std::numeric_limits<float>::quiet_NaN());
          continue;
        }
        std::partial_sort(order.begin(), order.begin() + top_k, order.end(),
                          [&](int32_t a, int32_t b) { return row[a] > row[b] || (row[a] == row[b] && a < b); });
        const float most = row[order[0]];
        float sum = 0.0f, chosen = 0.0f;
        for (int64_t e = 0; e < n; ++e) sum += std::exp(row[e] - most);
        for (int64_t k = 0; k < top_k; ++k) {
          id[k] = order[static_cast<size_t>(k)];
          weight[k] = std::exp(row[id[k]] - most) / sum;
          chosen += weight[k];
        }
        for (int64_t k = 0; k < top_k; ++k) {
          if (renormalize) weight[k] /= chosen;
          if (scale) weight[k] *= scale[id[k]];
        }
      }
    });
  });
}

void CpuEncoder::do_moe_gated(const Tensor& h, const Tensor& x, const Tensor& ids, const Experts& e) {
  struct Call {
    float* h;
    const float* x;
    const int32_t* ids;
    int64_t rows, hidden, count, top_k, inner, shared, width;
    Activation act;
    ExpertRows gate, up;
    Matrix shared_gate, shared_up;
  };
  Call call{raw_data<float>(h),
            raw_data<float>(x),
            raw_data<int32_t>(ids),
            x.shape[0],
            x.shape[1],
            e.count,
            e.top_k,
            e.intermediate,
            e.shared_intermediate,
            e.width(),
            e.activation,
            {e.gate, e.intermediate},
            {e.up, e.intermediate},
            {},
            {}};
  if (e.shared_intermediate > 0) call.shared_gate = matrix_of(e.shared_gate), call.shared_up = matrix_of(e.shared_up);
  push([call](Executor& ex) {
    const auto gated = [&](const Matrix& gate, const Matrix& up, const float* in, int64_t rows, float* out) {
      LinearJob job;
      job.x = in;
      job.rows = rows;
      job.n_outs = 2;
      job.outs[0] = {gate, out, nullptr};
      job.outs[1] = {up, nullptr, nullptr};
      job.epilogue = LinearEpilogue::gated;
      job.act = call.act;
      ex.linear.run(job);
    };
    const auto places = places_of(call.ids, call.rows * call.top_k, call.count);
    std::vector<float> in, out;
    for (int64_t expert = 0; expert < call.count; ++expert) {
      const std::vector<int64_t>& mine = places[static_cast<size_t>(expert)];
      const auto n = static_cast<int64_t>(mine.size());
      if (n == 0) continue;
      in.resize(mine.size() * static_cast<size_t>(call.hidden));
      out.resize(mine.size() * static_cast<size_t>(call.inner));
      for (int64_t i = 0; i < n; ++i)
        std::copy_n(call.x + mine[static_cast<size_t>(i)] / call.top_k * call.hidden, call.hidden,
                    in.data() + i * call.hidden);
      gated(call.gate.of(expert), call.up.of(expert), in.data(), n, out.data());
      for (int64_t i = 0; i < n; ++i) {
        const int64_t place = mine[static_cast<size_t>(i)];
        std::copy_n(out.data() + i * call.inner, call.inner,
                    call.h + place / call.top_k * call.width + place % call.top_k * call.inner);
      }
    }
    if (call.shared == 0) return;
    out.resize(static_cast<size_t>(call.rows * call.shared));
    gated(call.shared_gate, call.shared_up, call.x, call.rows, out.data());
    for (int64_t t = 0; t < call.rows; ++t)
      std::copy_n(out.data() + t * call.shared, call.shared, call.h + t * call.width + call.top_k * call.inner);
  });
}

void CpuEncoder::do_moe_down(const Tensor& y, const Tensor& h, const Routes& routes, const Tensor& shared,
                             const Experts& e, bool add) {
  struct Call {
    float* y;
    const float* h;
    const int32_t* ids;
    const float* weights;
    const float* gate;
    int64_t rows, hidden, count, top_k, inner, shared, width;
    bool add;
    ExpertRows down;
    Matrix shared_down;
  };
  Call call{raw_data<float>(y),
            raw_data<float>(h),
            raw_data<int32_t>(routes.ids),
            raw_data<float>(routes.weights),
            shared ? raw_data<float>(shared) : nullptr,
            y.shape[0],
            y.shape[1],
            e.count,
            e.top_k,
            e.intermediate,
            e.shared_intermediate,
            e.width(),
            add,
            {e.down, y.shape[1]},
            {}};
  if (e.shared_intermediate > 0) call.shared_down = matrix_of(e.shared_down);
  push([call](Executor& ex) {
    const auto down = [&](const Matrix& w, const float* in, int64_t rows, float* out) {
      LinearJob job;
      job.x = in;
      job.rows = rows;
      job.outs[0] = {w, out, nullptr};
      ex.linear.run(job);
    };
    const auto places = places_of(call.ids, call.rows * call.top_k, call.count);
    // Of each place first, so that a row's sum has the order of its experts.
    std::vector<float> each(static_cast<size_t>(call.rows * call.top_k * call.hidden)), in, out;
    for (int64_t expert = 0; expert < call.count; ++expert) {
      const std::vector<int64_t>& mine = places[static_cast<size_t>(expert)];
      const auto n = static_cast<int64_t>(mine.size());
      if (n == 0) continue;
      in.resize(mine.size() * static_cast<size_t>(call.inner));
      out.resize(mine.size() * static_cast<size_t>(call.hidden));
      for (int64_t i = 0; i < n; ++i) {
        const int64_t place = mine[static_cast<size_t>(i)];
        std::copy_n(call.h + place / call.top_k * call.width + place % call.top_k * call.inner, call.inner,
                    in.data() + i * call.inner);
      }
      down(call.down.of(expert), in.data(), n, out.data());
      for (int64_t i = 0; i < n; ++i)
        std::copy_n(out.data() + i * call.hidden, call.hidden,
                    each.data() + mine[static_cast<size_t>(i)] * call.hidden);
    }
    out.clear();
    if (call.shared > 0) {
      in.resize(static_cast<size_t>(call.rows * call.shared));
      out.resize(static_cast<size_t>(call.rows * call.hidden));
      for (int64_t t = 0; t < call.rows; ++t)
        std::copy_n(call.h + t * call.width + call.top_k * call.inner, call.shared, in.data() + t * call.shared);
      down(call.shared_down, in.data(), call.rows, out.data());
    }
    for (int64_t t = 0; t < call.rows; ++t) {
      float* row = call.y + t * call.hidden;
      const float gate = call.gate ? sigmoid(call.gate[t]) : 1.0f;
      for (int64_t i = 0; i < call.hidden; ++i) {
        float sum = 0.0f;
        for (int64_t k = 0; k < call.top_k; ++k) {
          const int64_t place = t * call.top_k + k;
          sum += call.weights[place] * each[static_cast<size_t>(place * call.hidden + i)];
        }
        if (call.shared > 0) sum += gate * out[static_cast<size_t>(t * call.hidden + i)];
        row[i] = call.add ? row[i] + sum : sum;
      }
    }
  });
}

}  // namespace saragossa::cpu
