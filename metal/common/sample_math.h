#pragma once
// The formulas of sampling (csrc/cpu/sample.h), to the same bits as on the CPU: fma, rint and division are rounded
// once, metal::exp and metal::log are not used, and a product that a sum follows goes through sg_scaled.

#include "params/sample_kernels.h"

// z = l * (1 / temperature). As an fma, since a compiler may contract a product with the addition behind it.
inline float sg_scaled(float l, float inv_t) { return metal::fma(l, inv_t, 0.0f); }
inline float4 sg_scaled(float4 l, float inv_t) { return metal::fma(l, float4(inv_t), float4(0.0f)); }

// exp(x) for x <= 0: x = n ln 2 + r, |r| <= ln 2 / 2; 1 + r + r^2 p(r), p minimax; below -87: 0.
inline float sg_exp_at_most_0(float x) {
  if (!(x >= -87.0f)) return 0.0f;
  const float n = metal::rint(x * 1.44269504088896341f);
  const float r = metal::fma(n, -1.42860682030941723212e-6f, metal::fma(n, -0.693145751953125f, x));
  float p = metal::fma(0.0013814539f, r, 0.008368745f);
  p = metal::fma(p, r, 0.04166839f);
  p = metal::fma(p, r, 0.16666521f);
  p = metal::fma(p, r, 0.49999994f);
  p = metal::fma(p, r * r, r) + 1.0f;
  return p * as_type<float>(uint(int(n) + 127) << 23);
}

// log(x), x a positive normal: x = 2^k m, m in [2/3, 4/3), f = m - 1; f + f^2 p(f), p minimax.
inline float sg_log_positive(float x) {
  const uint u = as_type<uint>(x);
  const int k = int(u - 0x3f2aaaabu) >> 23;
  const float f = as_type<float>(u - (uint(k) << 23)) - 1.0f;
  float p = metal::fma(0.14024566113948822f, f, -0.15390504896640778f);
  p = metal::fma(p, f, 0.13996148109436035f);
  p = metal::fma(p, f, -0.16415631771087646f);
  p = metal::fma(p, f, 0.2001114934682846f);
  p = metal::fma(p, f, -0.25007835030555725f);
  p = metal::fma(p, f, 0.33333197236061096f);
  p = metal::fma(p, f, -0.49999934434890747f);
  p = metal::fma(p, f * f, f);
  return metal::fma(float(k), 0.693147180559945309f, p);
}

// Philox4x32-10: the words of tokens 4 * counter.x to 4 * counter.x + 3.
inline uint4 sg_philox(uint4 c, uint key0, uint key1) {
  for (uint round = 0; round < 10; ++round) {
    c = uint4(metal::mulhi(c.z, 0xCD9E8D57u) ^ c.y ^ key0, c.z * 0xCD9E8D57u,
              metal::mulhi(c.x, 0xD2511F53u) ^ c.w ^ key1, c.x * 0xD2511F53u);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

inline float sg_gumbel(uint word) {
  // 2^-32, 2^-33, 1 - 2^-24
  const float v = metal::min(metal::fma(float(word), 2.3283064365386963e-10f, 1.16415321826934814e-10f), 0.99999994f);
  const float series = v * metal::fma(v, metal::fma(v, metal::fma(v, 0.25f, 1.0f / 3.0f), 0.5f), 1.0f);
  const float e = v < 0.0078125f ? series : -sg_log_positive(1.0f - v);
  return -sg_log_positive(e);
}

// exp(z - z_max) in units of 2^-30.
inline uint sg_mass(float z, float z_max) { return uint(metal::rint(sg_exp_at_most_0(z - z_max) * 1073741824.0f)); }

// Depth below the maximum in eighths; never falls where l does not rise. What lies deeper than the last has no mass.
#define SG_MASS_BUCKETS 192
inline uint sg_bucket(float z, float z_max) {
  const float at = (z_max - z) * 8.0f;
  return at < float(SG_MASS_BUCKETS) ? uint(at) : SG_MASS_BUCKETS;
}

inline bool sg_kept(float l, uint id, SampleCut cut) { return l > cut.value || (l == cut.value && int(id) <= cut.id); }

// Unsigned numbers in the order of floats, equal for 0 and -0; never 0 for a number that is no NaN.
inline uint sg_order_key(float x) {
  const uint u = x == 0.0f ? 0u : as_type<uint>(x);
  return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}
inline float sg_key_value(uint key) { return as_type<float>((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key); }

// Four tokens of a row from i on; -infinity behind its end. A row starts at any multiple of four bytes.
inline float4 sg_load_tokens(device const float* row, uint i, uint vocab) {
  if (i + 4 <= vocab) return float4(*(device const packed_float4*)(row + i));
  float4 out = float4(-INFINITY);
  for (uint j = 0; j < 4; ++j)
    if (i + j < vocab) out[j] = row[i + j];
  return out;
}

inline float sg_max4(float4 x) { return metal::max(metal::max(x.x, x.y), metal::max(x.z, x.w)); }

// The largest value, the lowest id on a tie.
struct SampleBest {
  float value;
  uint id;  // ~0: none
};

inline SampleBest sg_better(SampleBest a, SampleBest b) {
  return b.value > a.value || (b.value == a.value && b.id < a.id) ? b : a;
}

inline SampleBest sg_best_of_lanes(SampleBest best) {
  const float value = metal::simd_max(best.value);
  const uint id = metal::simd_min(best.value == value ? best.id : ~0u);
  return SampleBest{value, id};
}
