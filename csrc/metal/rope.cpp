#include "params/rope.h"

#include "metal/kv_launch.h"

namespace saragossa::metal {
namespace {

constexpr Kernel kRope{"rope", "rope"};
constexpr Kernel kKvAppend{"rope", "kv_append"};
constexpr Kernel kQkRopeAppend{"rope", "qk_rope_append"};

/// half: channel pairs that rotate.
Constants constants_of(const KvLayer& kv, int64_t half, const QkNorm& norm) {
  return {{u32(kv.k.shape[3]), u32(half), shared_value(kv.k.dtype), u32(kv.block_tokens()), norm.q ? 1u : 0u,
           norm.k ? 1u : 0u},
          6};
}

}  // namespace

void MetalEncoder::do_rope(const Tensor& x, const Rope& rope, const Tensor& positions) {
  const int64_t rows = x.shape[0], heads = x.shape[1], half = rope.inv_freq.shape[0];
  Launch(*this, kRope, {{u32(x.shape[2]), u32(half), SG_F32, 1, 0, 0}, 6})
      .buffer(SG_ROPE_X, x)
      .buffer(SG_ROPE_INV_FREQ, rope.inv_freq)
      .buffer(SG_ROPE_POSITIONS, positions)
      .params(SG_ROPE_PARAMS, RopeParams{u32(rows), u32(heads), rope.attention_factor})
      .threads(rows * heads * half);
}

void MetalEncoder::do_kv_append(const KvLayer& kv, const Tensor& k, const Tensor& v, const Batch& batch) {
  Launch(*this, kKvAppend, constants_of(kv, 0, {}))
      .buffer(SG_APPEND_K, k)
      .buffer(SG_APPEND_V, v)
      .buffer(SG_APPEND_CACHE_K, kv.k)
      .buffer(SG_APPEND_CACHE_V, kv.v)
      .buffer(SG_APPEND_POSITIONS, batch.positions)
      .buffer(SG_APPEND_SEQUENCE, batch.sequence)
      .buffer(SG_APPEND_BLOCK_TABLE, batch.block_table)
      .params(SG_APPEND_PARAMS, AppendParams{kv_params(kv, batch), u32(k.shape[0]), 0, 1.0f, 0.0f})
      .threads(k.numel());
}

void MetalEncoder::do_qk_rope_append(const Tensor& q, const Tensor& k, const Tensor& v, const QkNorm& norm,
                                     const Rope& rope, const KvLayer& kv, const Batch& batch) {
  if (!k || !v || norm.v) return CommandEncoder::do_qk_rope_append(q, k, v, norm, rope, kv, batch);
  constexpr int64_t kSimdgroups = 4;
  const int64_t rows = q.shape[0], heads = q.shape[1];
  const int64_t head_rows = rows * (heads + 2 * k.shape[1]);
  Launch(*this, kQkRopeAppend, constants_of(kv, rope.inv_freq.shape[0], norm))
      .buffer(SG_APPEND_Q, q)
      .buffer(SG_APPEND_K, k)
      .buffer(SG_APPEND_V, v)
      .buffer(SG_APPEND_CACHE_K, kv.k)
      .buffer(SG_APPEND_CACHE_V, kv.v)
      .buffer(SG_APPEND_POSITIONS, batch.positions)
      .buffer(SG_APPEND_SEQUENCE, batch.sequence)
      .buffer(SG_APPEND_BLOCK_TABLE, batch.block_table)
      .buffer(SG_APPEND_INV_FREQ, rope.inv_freq)
      .buffer(SG_APPEND_Q_NORM, norm.q ? norm.q : rope.inv_freq)  // not read where there is no norm
      .buffer(SG_APPEND_K_NORM, norm.k ? norm.k : rope.inv_freq)
      .params(SG_APPEND_PARAMS,
              AppendParams{kv_params(kv, batch), u32(rows), u32(heads), rope.attention_factor, norm.eps})
      .groups((head_rows + kSimdgroups - 1) / kSimdgroups, 1, 1, 32 * kSimdgroups);
}

}  // namespace saragossa::metal
