// Sampling kernels: sample.h has the formulas. Every entry gives the bits of the scalar one, sum_exp but for rounding.

namespace {

constexpr float kMinusInfinity = -__builtin_inff();

bool scan(const float* l, int64_t first, int64_t n, float* block_max) {
  Mask nan = no_lanes();
  bool nan_rest = false;
  for (int64_t i = first; i < first + n; i += kSampleBlock) {
    if (i + kSampleBlock <= first + n) {
      Vec best = set1(kMinusInfinity);
      for (int64_t j = 0; j < kSampleBlock; j += W) {
        const Vec v = load(l + i + j);
        nan = either(nan, is_nan(v));
        best = max(best, v);
      }
      block_max[i / kSampleBlock] = hmax(best);
    } else {
      float best = kMinusInfinity;
      for (int64_t j = i; j < first + n; ++j) {
        nan_rest |= l[j] != l[j];
        best = l[j] > best ? l[j] : best;
      }
      block_max[i / kSampleBlock] = best;
    }
  }
  return nan_rest || any(nan);
}

inline float process_one(float l, int64_t i, const uint32_t* mask, const uint32_t* counts, const SamplePenalties& p) {
  if (mask && !(mask[i / 32] >> (i % 32) & 1u)) l = kMinusInfinity;
  if (counts && counts[i] != 0) {
    const float output = static_cast<float>(counts[i] & ~SG_COUNT_PROMPT);
    l = l > 0.0f ? l / p.repetition : l * p.repetition;
    l = __builtin_fmaf(-p.frequency, output, l);
    if (output > 0.0f) l -= p.presence;
  }
  return l;
}

bool process(float* l, int64_t first, int64_t n, const uint32_t* mask, const uint32_t* counts, const SamplePenalties& p,
             float* block_max) {
  Mask nan = no_lanes();
  bool nan_rest = false;
  int64_t i = first;
  for (; i + W <= first + n; i += W) {
    Vec v = load(l + i);
    nan = either(nan, is_nan(v));
    if (mask) v = select(from_bits(mask[i / 32] >> (i % 32)), v, set1(kMinusInfinity));
    if (counts) {
      const Int count = iload(counts + i);
      const Int none = iset1(0);
      const Vec output = to_float(iand(count, iset1(~SG_COUNT_PROMPT)));
      Vec x = select(gt(v, zero()), div(v, set1(p.repetition)), mul(v, set1(p.repetition)));
      x = fma(set1(-p.frequency), output, x);
      x = select(gt(output, zero()), sub(x, set1(p.presence)), x);
      v = select(ieq(count, none), v, x);
    }
    store(l + i, v);
  }
  for (; i < first + n; ++i) {
    nan_rest |= l[i] != l[i];
    l[i] = process_one(l[i], i, mask, counts, p);
  }
  scan(l, first, n, block_max);
  return nan_rest || any(nan);
}

inline bool kept(float l, int64_t id, SampleCut cut) { return l > cut.value || (l == cut.value && id <= cut.id); }

inline Mask kept(Vec l, int64_t id, SampleCut cut) {
  const Mask level = eq(l, set1(cut.value));
  Mask out = gt(l, set1(cut.value));
  if (any(level)) {
    const Int ids = iadd(lanes(), iset1(static_cast<uint32_t>(id)));
    out = either(out, without(level, igt(ids, iset1(static_cast<uint32_t>(cut.id)))));
  }
  return out;
}

inline Int mass_of(Vec z, float z_max) { return to_int(mul(exp_below_88(sub(z, set1(z_max))), set1(0x1p30f))); }

void masses(const float* l, int64_t n, float inv_t, float z_max, uint32_t* out) {
  int64_t i = 0;
  for (; i + W <= n; i += W) istore(out + i, mass_of(mul(load(l + i), set1(inv_t)), z_max));
  for (; i < n; ++i) out[i] = mass_of(l[i] * inv_t, z_max);
}

void histogram(const float* l, int64_t first, int64_t n, float inv_t, float z_max, const float* block_max,
               uint64_t* buckets) {
  for (int64_t i = first; i < first + n; i += kSampleBlock) {
    if (sample_bucket(block_max[i / kSampleBlock] * inv_t, z_max) == kMassBuckets) continue;
    const int64_t count = i + kSampleBlock <= first + n ? kSampleBlock : first + n - i;
    alignas(64) uint32_t mass[kSampleBlock];
    alignas(64) uint32_t bucket[kSampleBlock];
    int64_t j = 0;
    for (; j + W <= count; j += W) {
      const Vec z = mul(load(l + i + j), set1(inv_t));
      const Vec at = mul(sub(set1(z_max), z), set1(kBucketsPerUnit));
      istore(mass + j, mass_of(z, z_max));  // 0 in the last bucket, where everything deeper goes
      istore(bucket + j, truncate(min(set1(static_cast<float>(kMassBuckets - 1)), at)));
    }
    for (; j < count; ++j) {
      const int b = sample_bucket(l[i + j] * inv_t, z_max);
      bucket[j] = static_cast<uint32_t>(b < kMassBuckets ? b : kMassBuckets - 1);
      mass[j] = mass_of(l[i + j] * inv_t, z_max);
    }
    for (j = 0; j < count; ++j) buckets[bucket[j]] += mass[j];
  }
}

inline void philox(Int (&c)[4], uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    Int a_high, a_low, b_high, b_low;
    mul_wide(c[0], 0xD2511F53u, a_high, a_low);
    mul_wide(c[2], 0xCD9E8D57u, b_high, b_low);
    c[0] = ixor(ixor(b_high, c[1]), iset1(key0));
    c[1] = b_low;
    c[2] = ixor(ixor(a_high, c[3]), iset1(key1));
    c[3] = a_low;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

inline Vec gumbel(Int word) {
  const Vec v = min(fma(unsigned_to_float(word), set1(0x1p-32f), set1(0x1p-33f)), set1(1.0f - 0x1p-24f));
  const Vec series = mul(v, fma(v, fma(v, fma(v, set1(0.25f), set1(1.0f / 3.0f)), set1(0.5f)), set1(1.0f)));
  const Vec e = select(lt(v, set1(0x1p-7f)), series, sub(zero(), log_positive(sub(set1(1.0f), v))));
  return sub(zero(), log_positive(e));
}

struct BestLanes {
  Vec value = set1(kMinusInfinity);
  Int id = iset1(0xffffffffu);

  void take(Mask m, Vec v, int64_t at) {
    const Mask better = both(m, gt(v, value));
    value = select(better, v, value);
    id = iselect(better, iadd(lanes(), iset1(static_cast<uint32_t>(at))), id);
  }
  SampleDraw reduce() const {
    alignas(64) float values[W];
    alignas(64) uint32_t ids[W];
    store(values, value);
    istore(ids, id);
    SampleDraw best{kMinusInfinity, -1};
    for (int64_t i = 0; i < W; ++i) {
      const auto lane_id = static_cast<int32_t>(ids[i]);
      if (values[i] > best.value || (values[i] == best.value && lane_id >= 0 && lane_id < best.id))
        best = {values[i], lane_id};
    }
    return best;
  }
};

/// Fewer tokens than a group of four vectors.
SampleDraw draw_rest(const float* l, int64_t first, int64_t end, float inv_t, SampleCut cut, const SampleParams& p) {
  SampleDraw best{kMinusInfinity, -1};
  uint32_t words[4] = {};
  for (int64_t i = first; i < end; ++i) {
    if (i % 4 == 0) {
      words[0] = static_cast<uint32_t>(i / 4), words[1] = p.step, words[2] = words[3] = 0;
      philox(words, p.seed_lo, p.seed_hi);
    }
    const float value = l[i] * inv_t + gumbel(words[i % 4]);
    if (kept(l[i], i, cut) && value > best.value) best = {value, static_cast<int32_t>(i)};
  }
  return best;
}

SampleDraw draw(const float* l, int64_t first, int64_t n, float inv_t, const float* block_max, SampleCut cut,
                const SampleParams& p, float bound) {
  // g <= -log(v), so a word can win only where v <= exp(z - bound); the margin covers the rounding of z + g.
  const bool filter = bound > -1000.0f && bound < 1000.0f;
  BestLanes best;
  SampleDraw rest{kMinusInfinity, -1};
  for (int64_t i = first; i < first + n; i += kSampleBlock) {
    const float top = block_max[i / kSampleBlock];
    if (top < cut.value || top * inv_t + kGumbelMax < bound) continue;
    const int64_t end = i + kSampleBlock <= first + n ? i + kSampleBlock : first + n;
    const float most = filter ? exp1(top * inv_t - bound) * 1.001f : 1.0f;
    const Int limit = iset1(most < 0.99f ? static_cast<uint32_t>(most * 0x1p32f) + 1u : 0xffffffffu);
    int64_t j = i;
    for (; j + 4 * W <= end; j += 4 * W) {
      Int c[4] = {iadd(lanes(), iset1(static_cast<uint32_t>(j / 4))), iset1(p.step), iset1(0), iset1(0)};
      philox(c, p.seed_lo, p.seed_hi);
      if (!any(unsigned_at_most(unsigned_min(unsigned_min(c[0], c[1]), unsigned_min(c[2], c[3])), limit))) continue;
      alignas(64) float g[4 * W];
      interleave4(g, gumbel(c[0]), gumbel(c[1]), gumbel(c[2]), gumbel(c[3]));
      for (int64_t k = 0; k < 4 * W; k += W) {
        const Vec v = load(l + j + k);
        best.take(kept(v, j + k, cut), add(mul(v, set1(inv_t)), load(g + k)), j + k);
      }
    }
    if (j < end) rest = draw_rest(l, j, end, inv_t, cut, p);  // the last block of the row alone
    const float now = hmax(best.value);
    bound = now > bound ? now : bound;
  }
  const SampleDraw lanes_best = best.reduce();
  return rest.id >= 0 && rest.value > lanes_best.value ? rest : lanes_best;
}

double sum_exp(const float* l, int64_t first, int64_t n, float max) {
  double sum = 0.0;
  int64_t i = first;
  for (; i + kSampleBlock <= first + n; i += kSampleBlock) {
    Vec part = zero();
    for (int64_t j = 0; j < kSampleBlock; j += W) part = add(part, exp_below_88(sub(load(l + i + j), set1(max))));
    sum += static_cast<double>(hsum(part));
  }
  for (; i < first + n; ++i) sum += static_cast<double>(exp1(l[i] - max));
  return sum;
}

}  // namespace
