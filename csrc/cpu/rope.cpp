// Rotary embedding and the way into the KV cache on the CPU.

#include "cpu/cache_write.h"
#include "cpu/cpu_encoder.h"

namespace saragossa::cpu {
namespace {

/// The angles of one call, as raw pointers.
struct RopeCall {
  const float* inv_freq;
  const int32_t* positions;
  int64_t half;
  float factor;

  RopeCall(const Rope& rope, const Tensor& at)
      : inv_freq(raw_data<float>(rope.inv_freq)),
        positions(raw_data<int32_t>(at)),
        half(rope.inv_freq.shape[0]),
        factor(rope.attention_factor) {}
};

/// x [rows, heads, head_dim] in place: an optional norm of each head, then the rotation.
struct HeadsCall {
  float* x;
  const float* norm;
  int64_t rows, heads, head_dim;

  HeadsCall(const Tensor& t, const Tensor& w)
      : x(raw_data<float>(t)),
        norm(w ? raw_data<float>(w) : nullptr),
        rows(t.shape[0]),
        heads(t.shape[1]),
        head_dim(t.shape[2]) {}

  void run(const VectorKernels& kernels, const RopeTable::View& table, int64_t half, float eps, int64_t row) const {
    for (int64_t h = 0; h < heads; ++h) {
      float* head = x + (row * heads + h) * head_dim;
      if (norm) kernels.rms_norm(head, head, norm, eps, head_dim);
      kernels.rotate(head, table.cos + row * half, table.sin + row * half, half);
    }
  }
};

/// Values of the rows of a step, on their way into the cache.
struct ValuesCall {
  float* x = nullptr;           // [rows, kv_heads, head_dim]: values, or keys as they come
  const float* norm = nullptr;  // of each head; null: none
  float* normed = nullptr;      // where normed ones go: as x; may be x

  /// What is to be stored of row `row`, `heads` of `head_dim`.
  const float* run(const VectorKernels& kernels, float eps, int64_t row, int64_t heads, int64_t head_dim) const {
    const int64_t at = row * heads * head_dim;
    if (!norm) return x + at;
    for (int64_t h = 0; h < heads; ++h)
      kernels.rms_norm(normed + at + h * head_dim, x + at + h * head_dim, norm, eps, head_dim);
    return normed + at;
  }
};

}  // namespace

void CpuEncoder::do_rope(const Tensor& x, const Rope& rope, const Tensor& positions) {
  push([heads = HeadsCall(x, {}), call = RopeCall(rope, positions)](Executor& ex) {
    const auto table = ex.rope_table.get(call.inv_freq, call.half, call.factor, call.positions, heads.rows);
    ex.rows(heads.rows, heads.heads * heads.head_dim, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) heads.run(ex.kernels, table, call.half, 0.0f, t);
    });
  });
}

void CpuEncoder::do_kv_append(const KvLayer& kv, const Tensor& k, const Tensor& v, const Batch& batch) {
  push([writer = CacheWriter(kv, batch), k = raw_data<float>(k), v = raw_data<float>(v),
        rows = k.shape[0]](Executor& ex) {
    const int64_t row = writer.kv_heads * writer.head_dim;
    for (int64_t t = 0; t < rows; ++t) writer.place(t);  // throws here, not on a worker
    ex.rows(rows, 2 * row, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        writer.write_keys(t, k + t * row, ex.kernels);
        writer.write_values(t, v + t * row, ex.kernels);
      }
    });
  });
}

void CpuEncoder::do_qk_rope_append(const Tensor& q, const Tensor& k, const Tensor& v, const QkNorm& norm,
                                   const Rope& rope, const KvLayer& kv, const Batch& batch) {
  const RopeCall angles(rope, batch.positions);
  if (!k) {
    push([qs = HeadsCall(q, norm.q), call = angles, eps = norm.eps](Executor& ex) {
      const auto table = ex.rope_table.get(call.inv_freq, call.half, call.factor, call.positions, qs.rows);
      ex.rows(qs.rows, qs.heads * qs.head_dim, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) qs.run(ex.kernels, table, call.half, eps, t);
      });
    });
    return;
  }
  ValuesCall values;
  values.x = raw_data<float>(v ? v : k);
  if (norm.v) {
    values.norm = raw_data<float>(norm.v);
    values.normed = v ? values.x : raw_data<float>(scratch(DType::f32, k.shape));
  }
  push([qs = HeadsCall(q, norm.q), ks = HeadsCall(k, norm.k), values, call = angles, writer = CacheWriter(kv, batch),
        eps = norm.eps](Executor& ex) {
    const auto table = ex.rope_table.get(call.inv_freq, call.half, call.factor, call.positions, qs.rows);
    const int64_t row = ks.heads * ks.head_dim;
    for (int64_t t = 0; t < ks.rows; ++t) writer.place(t);
    ex.rows(qs.rows, (qs.heads + 2 * ks.heads) * qs.head_dim, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        // Values first: they may be the keys as they come.
        writer.write_values(t, values.run(ex.kernels, eps, t, ks.heads, ks.head_dim), ex.kernels);
        qs.run(ex.kernels, table, call.half, eps, t);
        ks.run(ex.kernels, table, call.half, eps, t);
        writer.write_keys(t, ks.x + t * row, ex.kernels);
      }
    });
  });
}

}  // namespace saragossa::cpu
