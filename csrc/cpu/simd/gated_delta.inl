// The gated delta net, row by row: gated_delta.h has the forms. Precision: float throughout, exp and log within 1e-7.
// Order of sums: over j of a convolution ascending; over a head's key_dim by lanes, then across them.

namespace {

void pack_conv(float* packed, const float* w, int64_t width, int64_t n) {
  if (width == 4) {  // of every published model: a constant that the compiler may unroll
    for (int64_t c = 0; c < n; ++c)
      for (int64_t j = 0; j < 4; ++j) packed[j * n + c] = w[c * 4 + j];
    return;
  }
  for (int64_t c = 0; c < n; ++c)
    for (int64_t j = 0; j < width; ++j) packed[j * n + c] = w[c * width + j];
}

void conv(float* y, const float* const* rows, const float* packed, int64_t width, int64_t n) {
  each_vector(n, [&](auto get, auto put) {
    Vec sum = zero();
    for (int64_t j = 0; j < width; ++j) sum = fma(get(rows[j]), get(packed + j * n), sum);
    put(y, times_sigmoid(sum, sum));
  });
}

/// a . b; sums of four vectors at a time.
inline float dot(const float* a, const float* b, int64_t n) {
  Vec sums[4] = {zero(), zero(), zero(), zero()};
  int64_t i = 0;
  for (; i + 4 * W <= n; i += 4 * W)
    for (int j = 0; j < 4; ++j) sums[j] = fma(load(a + i + j * W), load(b + i + j * W), sums[j]);
  for (; i + W <= n; i += W) sums[0] = fma(load(a + i), load(b + i), sums[0]);
  if (i < n) sums[1] = fma(load_n(a + i, n - i), load_n(b + i, n - i), sums[1]);
  return hsum(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

void l2_norm(float* x, float factor, int64_t n) { scaled(x, x, factor / __builtin_sqrtf(dot(x, x, n) + 1e-6f), n); }

/// log(1 + e), 0 <= e <= 1: the rounding of 1 + e is taken back, so that small e keep their digits.
inline Vec log_1_plus(Vec e) {
  const Vec u = add(set1(1.0f), e);
  return add(log_positive(u), div(sub(e, sub(u, set1(1.0f))), u));
}

void gates(float* decay, float* beta, const float* a, const float* b, const float* a_log, const float* dt_bias,
           int64_t n) {
  each_vector(n, [&](auto get, auto put) {
    const Vec x = add(get(a), get(dt_bias));
    const Vec falling = exp(sub(zero(), max(x, sub(zero(), x))));
    const Vec softplus = add(max(x, zero()), log_1_plus(falling));
    put(decay, exp(sub(zero(), mul(exp(get(a_log)), softplus))));
    put(beta, times_sigmoid(set1(1.0f), get(b)));
  });
}

/// kRows value rows: both products of the state before it changes, then the change; kq: k . q.
template <int kRows>
inline void step_rows(const DeltaStep& s, int64_t row, float kq) {
  const int64_t n = s.key_dim;
  const float* from = s.from + row * n;
  float* to = s.to + row * n;
  Vec by_k[kRows], by_q[kRows];
  for (int r = 0; r < kRows; ++r) by_k[r] = by_q[r] = zero();
  const auto products = [&](int64_t i, auto get) {
    const Vec k = get(s.k + i), q = get(s.q + i);
    for (int r = 0; r < kRows; ++r) {
      const Vec x = get(from + r * n + i);
      by_k[r] = fma(x, k, by_k[r]);
      by_q[r] = fma(x, q, by_q[r]);
    }
  };
  int64_t i = 0;
  for (; i + W <= n; i += W) products(i, [](const float* p) { return load(p); });
  if (i < n) products(i, [&](const float* p) { return load_n(p, n - i); });

  float held[kRows], seen[kRows];
  if constexpr (kRows == 4) {
    hsum4(held, by_k[0], by_k[1], by_k[2], by_k[3]);
    hsum4(seen, by_q[0], by_q[1], by_q[2], by_q[3]);
  } else {
    for (int r = 0; r < kRows; ++r) held[r] = hsum(by_k[r]), seen[r] = hsum(by_q[r]);
  }
  Vec delta[kRows];
  for (int r = 0; r < kRows; ++r) {
    const float d = s.beta * __builtin_fmaf(-s.decay, held[r], s.v[row + r]);
    s.y[row + r] = __builtin_fmaf(d, kq, s.decay * seen[r]);
    delta[r] = set1(d);
  }
  const Vec decay = set1(s.decay);
  for (i = 0; i + W <= n; i += W) {
    const Vec k = load(s.k + i);
    for (int r = 0; r < kRows; ++r) store(to + r * n + i, fma(delta[r], k, mul(decay, load(from + r * n + i))));
  }
  if (i < n) {
    const Vec k = load_n(s.k + i, n - i);
    for (int r = 0; r < kRows; ++r)
      store_n(to + r * n + i, fma(delta[r], k, mul(decay, load_n(from + r * n + i, n - i))), n - i);
  }
}

void step(const DeltaStep& s) {
  const float kq = dot(s.k, s.q, s.key_dim);
  int64_t row = 0;
  for (; row + 4 <= s.rows; row += 4) step_rows<4>(s, row, kq);
  for (; row < s.rows; ++row) step_rows<1>(s, row, kq);
}

}  // namespace
