#include "params/rope.h"

#include "metal/kv_launch.h"

namespace saragossa::metal {
namespace {

constexpr Kernel kRope{"rope", "rope"};
constexpr Kernel kKvAppend{"rope", "kv_append"};
constexpr Kernel kKvAppendCodes{"rope", "kv_append_codes"};
constexpr Kernel kQkRopeAppend{"rope", "qk_rope_append"};

constexpr int64_t kSimdgroups = 4;  // of a threadgroup; each takes a head

/// half: channel pairs that rotate; given: SG_APPEND_*.
Constants constants_of(const KvLayer& kv, int64_t half, const QkNorm& norm, uint32_t given) {
  return {{u32(kv.k.shape[3]), u32(half), kv_value(kv), u32(kv.block_tokens()), norm.q ? 1u : 0u, norm.k ? 1u : 0u,
           norm.v ? 1u : 0u, given},
          8};
}

Launch& bind_cache(Launch& launch, const KvLayer& kv, const Batch& batch) {
  return launch.buffer(SG_APPEND_CACHE_K, kv.k)
      .buffer(SG_APPEND_CACHE_V, kv.v)
      .buffer(SG_APPEND_K_SCALES, scales_of(kv.k, kv.k_scales))
      .buffer(SG_APPEND_V_SCALES, scales_of(kv.v, kv.v_scales))
      .buffer(SG_APPEND_POSITIONS, batch.positions)
      .buffer(SG_APPEND_SEQUENCE, batch.sequence)
      .buffer(SG_APPEND_BLOCK_TABLE, batch.block_table);
}

void launch_heads(Launch& launch, int64_t heads) {
  launch.groups((heads + kSimdgroups - 1) / kSimdgroups, 1, 1, 32 * kSimdgroups);
}

}  // namespace

void MetalEncoder::do_rope(const Tensor& x, const Rope& rope, const Tensor& positions) {
  const int64_t rows = x.shape[0], heads = x.shape[1], half = rope.inv_freq.shape[0];
  Launch(*this, kRope, {{u32(x.shape[2]), u32(half), SG_F32, 1, 0, 0, 0, 0}, 8})
      .buffer(SG_ROPE_X, x)
      .buffer(SG_ROPE_INV_FREQ, rope.inv_freq)
      .buffer(SG_ROPE_POSITIONS, positions)
      .params(SG_ROPE_PARAMS, RopeParams{u32(rows), u32(heads), rope.attention_factor})
      .threads(rows * heads * half);
}

void MetalEncoder::do_kv_append(const KvLayer& kv, const Tensor& k, const Tensor& v, const Batch& batch) {
  const bool codes = kv.k.dtype == DType::u8;
  Launch launch(*this, codes ? kKvAppendCodes : kKvAppend, constants_of(kv, 0, {}, SG_APPEND_ALL));
  bind_cache(launch, kv, batch)
      .buffer(SG_APPEND_K, k)
      .buffer(SG_APPEND_V, v)
      .params(SG_APPEND_PARAMS, AppendParams{kv_params(kv, batch), u32(k.shape[0]), 0, 1.0f, 0.0f});
  if (codes) return launch_heads(launch, 2 * k.shape[0] * k.shape[1]);
  launch.threads(k.numel());
}

void MetalEncoder::do_qk_rope_append(const Tensor& q, const Tensor& k, const Tensor& v, const QkNorm& norm,
                                     const Rope& rope, const KvLayer& kv, const Batch& batch) {
  const uint32_t given = !k ? SG_APPEND_Q_ALONE : !v ? SG_APPEND_K_IS_V : SG_APPEND_ALL;
  const int64_t cached = !k ? 0 : (v ? 2 : 1) * k.shape[1];
  // Every slot is bound; what is not given is not touched. The op keeps no cache that it does not write.
  const Tensor& keys = k ? k : q;
  const KvLayer cache = k ? kv : KvLayer{q, q};
  const auto weights = [&](const Tensor& w) { return w ? w : rope.inv_freq; };  // not read where there is no norm
  Launch launch(*this, kQkRopeAppend, constants_of(kv, rope.inv_freq.shape[0], norm, given));
  bind_cache(launch, cache, batch)
      .buffer(SG_APPEND_Q, q)
      .buffer(SG_APPEND_K, keys)
      .buffer(SG_APPEND_V, v ? v : keys)
      .buffer(SG_APPEND_INV_FREQ, rope.inv_freq)
      .buffer(SG_APPEND_Q_NORM, weights(norm.q))
      .buffer(SG_APPEND_K_NORM, weights(norm.k))
      .buffer(SG_APPEND_V_NORM, weights(norm.v))
      .params(SG_APPEND_PARAMS,
              AppendParams{kv_params(kv, batch), u32(q.shape[0]), u32(q.shape[1]), rope.attention_factor, norm.eps});
  launch_heads(launch, q.shape[0] * (q.shape[1] + cached));
}

}  // namespace saragossa::metal
