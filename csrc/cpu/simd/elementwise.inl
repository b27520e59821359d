// Norms, activations, rotary embedding, bf16: one pass over the data each.

namespace {

/// fn(load, store) over n values: whole vectors, then the rest.
template <class Fn>
inline void each_vector(int64_t n, Fn&& fn) {
  int64_t i = 0;
  for (; i + W <= n; i += W) fn([&](const float* p) { return load(p + i); }, [&](float* p, Vec v) { store(p + i, v); });
  if (i < n)
    fn([&](const float* p) { return load_n(p + i, n - i); }, [&](float* p, Vec v) { store_n(p + i, v, n - i); });
}

inline float norm_scale(const float* x, float eps, int64_t n) {
  Vec sums[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * W <= n; i += 4 * W)
    for (int j = 0; j < 4; ++j) {
      const Vec v = load(x + i + j * W);
      sums[j] = fma(v, v, sums[j]);
    }
  for (; i + W <= n; i += W) {
    const Vec v = load(x + i);
    sums[0] = fma(v, v, sums[0]);
  }
  if (i < n) {
    const Vec v = load_n(x + i, n - i);
    sums[1] = fma(v, v, sums[1]);
  }
  const float sum = hsum(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
  return 1.0f / __builtin_sqrtf(sum / static_cast<float>(n) + eps);
}

void rms_norm(float* y, const float* x, const float* w, float eps, int64_t n) {
  const Vec s = set1(norm_scale(x, eps, n));
  each_vector(n, [&](auto get, auto put) { put(y, mul(mul(get(x), s), get(w))); });
}

void norm_add(float* y, const float* x, const float* w, float eps, int64_t n) {
  const Vec s = set1(norm_scale(x, eps, n));
  each_vector(n, [&](auto get, auto put) { put(y, add(get(y), mul(mul(get(x), s), get(w)))); });
}

void add_op(float* y, const float* a, const float* b, int64_t n) {
  each_vector(n, [&](auto get, auto put) { put(y, add(get(a), get(b))); });
}

/// x / (1 + e^-t)
inline Vec times_sigmoid(Vec x, Vec t) { return div(x, add(set1(1.0f), exp(sub(zero(), t)))); }

void act_mul(float* y, const float* gate, const float* up, int64_t n, Activation act) {
  if (act == Activation::silu) {
    each_vector(n, [&](auto get, auto put) {
      const Vec x = get(gate);
      put(y, mul(times_sigmoid(x, x), get(up)));
    });
  } else {  // 0.5 (1 + tanh t) = 1 / (1 + e^-2t)
    each_vector(n, [&](auto get, auto put) {
      const Vec x = get(gate);
      const Vec t =
          mul(x, fma(mul(x, x), set1(2.0f * 0.7978845608028654f * 0.044715f), set1(2.0f * 0.7978845608028654f)));
      put(y, mul(times_sigmoid(x, t), get(up)));
    });
  }
}

void sigmoid_mul(float* y, const float* x, const float* gate, int64_t n) {
  each_vector(n, [&](auto get, auto put) { put(y, times_sigmoid(get(x), get(gate))); });
}

void scale_by(float* x, float factor, int64_t n) {
  each_vector(n, [&](auto get, auto put) { put(x, mul(get(x), set1(factor))); });
}

void softcap(float* x, float cap, int64_t n) {
  each_vector(n, [&](auto get, auto put) { put(x, soft_cap(get(x), cap)); });
}

void rotate(float* x, const float* cos, const float* sin, int64_t half) {
  each_vector(half, [&](auto get, auto put) {
    const Vec a = get(x), b = get(x + half), c = get(cos), s = get(sin);
    put(x, neg_fma(b, s, mul(a, c)));
    put(x + half, fma(a, s, mul(b, c)));
  });
}

inline Int bf16_bits(Vec v) {
  const Int u = as_int(v);
  const Int even = iand(shr<16>(u), iset1(1));
  const Int rounded = shr<16>(iadd(iadd(u, iset1(0x7fff)), even));
  const Int quiet = ixor(iand(shr<16>(u), iset1(0xffbf)), iset1(0x40));  // the quiet bit set
  return iselect(is_nan(v), quiet, rounded);
}

void to_bf16(uint16_t* y, const float* x, int64_t n) {
  int64_t i = 0;
  for (; i + W <= n; i += W) store_low16(y + i, bf16_bits(load(x + i)));
  if (i < n) {
    alignas(64) uint16_t rest[W];
    store_low16(rest, bf16_bits(load_n(x + i, n - i)));
    std::memcpy(y + i, rest, static_cast<size_t>(n - i) * sizeof(uint16_t));
  }
}

/// codes[n] of one group, n <= SG_KV_GROUP.
inline KvScale group_codes(uint8_t* codes, const float* x, int64_t n) {
  Vec low = set1(__builtin_inff()), high = set1(-__builtin_inff());
  bool finite = true;
  for (int64_t i = 0; i < n; i += W) {  // lanes behind the end see the first value again
    const Vec v =
        i + W <= n ? load(x + i)
                   : select(lt(to_float(lanes()), set1(static_cast<float>(n - i))), load_n(x + i, n - i), set1(x[0]));
    finite = finite && !any(is_nan(sub(v, v)));
    low = min(low, v);
    high = max(high, v);
  }
  if (!finite) {
    std::memset(codes, 0, static_cast<size_t>(n));
    return kKvNan;
  }
  const KvScale scale = kv_scale_of(-hmax(sub(zero(), low)), hmax(high));
  const Vec zeros = set1(bf16_to_f32(scale.zero)), inverse = set1(kv_inverse(scale));
  alignas(64) uint32_t wide[SG_KV_GROUP];
  for (int64_t i = 0; i < n; i += W) {
    const Vec v = i + W <= n ? load(x + i) : load_n(x + i, n - i);
    istore(wide + i, to_int(min(max(round(mul(sub(v, zeros), inverse)), zero()), set1(255.0f))));
  }
  for (int64_t i = 0; i < n; ++i) codes[i] = static_cast<uint8_t>(wide[i]);
  return scale;
}

void to_codes(uint8_t* codes, uint16_t* scales, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; i += SG_KV_GROUP, scales += 2) {
    const KvScale scale = group_codes(codes + i, x + i, n - i < SG_KV_GROUP ? n - i : SG_KV_GROUP);
    scales[0] = scale.step, scales[1] = scale.zero;
  }
}

}  // namespace
