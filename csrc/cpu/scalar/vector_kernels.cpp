// The reference: plain loops, in the order in which the formulas are written, std::exp and std::tanh.

#include "cpu/vector_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/dtype.h"
#include "cpu/kv_codes.h"

namespace saragossa::cpu::scalar {
#include "cpu/sample_math.inl"
namespace {

float norm_scale(const float* x, float eps, int64_t n) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(n) + eps));
}

void rms_norm(float* y, const float* x, const float* w, float eps, int64_t n) {
  const float s = norm_scale(x, eps, n);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * s * w[i];
}

void norm_add(float* y, const float* x, const float* w, float eps, int64_t n) {
  const float s = norm_scale(x, eps, n);
  for (int64_t i = 0; i < n; ++i) y[i] += x[i] * s * w[i];
}

void add(float* y, const float* a, const float* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

float activate(float x, Activation act) {
  if (act == Activation::silu) return x / (1.0f + std::exp(-x));
  constexpr float kRoot2OverPi = 0.7978845608028654f;
  return 0.5f * x * (1.0f + std::tanh(kRoot2OverPi * (x + 0.044715f * x * x * x)));
}

void act_mul(float* y, const float* gate, const float* up, int64_t n, Activation act) {
  for (int64_t i = 0; i < n; ++i) y[i] = activate(gate[i], act) * up[i];
}

void sigmoid_mul(float* y, const float* x, const float* gate, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] / (1.0f + std::exp(-gate[i]));
}

void scale_by(float* x, float factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

void softcap(float* x, float cap, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = cap * std::tanh(x[i] / cap);
}

void rotate(float* x, const float* cos, const float* sin, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
}

void to_bf16(uint16_t* y, const float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = f32_to_bf16(x[i]);
}

void to_codes(uint8_t* codes, uint16_t* scales, const float* x, int64_t n) {
  for (int64_t first = 0; first < n; first += SG_KV_GROUP, scales += 2) {
    const int64_t end = std::min<int64_t>(first + SG_KV_GROUP, n);
    const bool finite = std::all_of(x + first, x + end, [](float v) { return std::isfinite(v); });
    const auto [low, high] = std::minmax_element(x + first, x + end);
    const KvScale scale = finite ? kv_scale_of(*low, *high) : kKvNan;
    const float inverse = kv_inverse(scale);
    for (int64_t i = first; i < end; ++i) codes[i] = finite ? kv_code(x[i], scale, inverse) : 0;
    scales[0] = scale.step, scales[1] = scale.zero;
  }
}

// --- attention ------------------------------------------------------------------------------------

float load_kv(const AttentionCall& c, KvRow row, int64_t i) {
  if (c.dtype != DType::u8) return load_float(row.data, c.dtype, i);
  const uint16_t* scale = row.scales + i / SG_KV_GROUP * 2;
  return static_cast<float>(row.data[i]) * bf16_to_f32(scale[0]) + bf16_to_f32(scale[1]);
}

void attention_row(const AttentionCall& c, int64_t row, int64_t head, float* scores) {
  const int64_t d = c.head_dim, kv_head = head / c.group();
  const int64_t begin = c.first_key(c.positions[row]), end = c.positions[row] + 1;
  const float* q = c.q + (row * c.heads + head) * d;
  float* y = c.y + (row * c.heads + head) * d;
  float max = -std::numeric_limits<float>::infinity();
  for (int64_t j = begin; j < end; ++j) {
    const KvRow k = c.keys(row, kv_head, j);
    double dot = 0.0;
    for (int64_t i = 0; i < d; ++i) dot += static_cast<double>(q[i]) * load_kv(c, k, i);
    float s = static_cast<float>(dot * c.scale);
    if (c.softcap > 0.0f) s = c.softcap * std::tanh(s / c.softcap);
    scores[j] = s;
    max = std::max(max, s);
  }
  double total = 0.0;
  for (int64_t j = begin; j < end; ++j) total += scores[j] = std::exp(scores[j] - max);
  const float sum = static_cast<float>(total);
  std::fill_n(y, d, 0.0f);
  for (int64_t j = begin; j < end; ++j) {
    const KvRow v = c.values(row, kv_head, j);
    for (int64_t i = 0; i < d; ++i) y[i] += scores[j] / sum * load_kv(c, v, i);
  }
  if (c.gate) sigmoid_mul(y, y, c.gate + (row * c.heads + head) * d, d);
}

// --- sampling -------------------------------------------------------------------------------------

bool scan(const float* l, int64_t first, int64_t n, float* block_max) {
  bool nan = false;
  for (int64_t i = first; i < first + n; ++i) {
    float& max = block_max[i / kSampleBlock];
    if (i % kSampleBlock == 0) max = -std::numeric_limits<float>::infinity();
    nan |= std::isnan(l[i]);
    max = std::max(max, l[i]);
  }
  return nan;
}

bool process(float* l, int64_t first, int64_t n, const uint32_t* mask, const uint32_t* counts, const SamplePenalties& p,
             float* block_max) {
  bool nan = false;
  for (int64_t i = first; i < first + n; ++i) {
    nan |= std::isnan(l[i]);
    if (mask && !(mask[i / 32] >> (i % 32) & 1u)) l[i] = -std::numeric_limits<float>::infinity();
    if (counts && counts[i] != 0) {
      const float output = static_cast<float>(counts[i] & ~SG_COUNT_PROMPT);
      l[i] = l[i] > 0.0f ? l[i] / p.repetition : l[i] * p.repetition;
      l[i] = std::fma(-p.frequency, output, l[i]);
      if (output > 0.0f) l[i] -= p.presence;
    }
  }
  scan(l, first, n, block_max);
  return nan;
}

bool kept(float l, int64_t id, SampleCut cut) { return l > cut.value || (l == cut.value && id <= cut.id); }

void masses(const float* l, int64_t n, float inv_t, float z_max, uint32_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = mass_of(l[i] * inv_t, z_max);
}

void histogram(const float* l, int64_t first, int64_t n, float inv_t, float z_max, const float*, uint64_t* buckets) {
  for (int64_t i = first; i < first + n; ++i) {
    const int bucket = sample_bucket(l[i] * inv_t, z_max);
    if (bucket < kMassBuckets) buckets[bucket] += mass_of(l[i] * inv_t, z_max);
  }
}

SampleDraw draw(const float* l, int64_t first, int64_t n, float inv_t, const float*, SampleCut cut,
                const SampleParams& p, float) {
  SampleDraw best{-std::numeric_limits<float>::infinity(), -1};
  uint32_t words[4] = {};
  for (int64_t i = first; i < first + n; ++i) {
    if (i % 4 == 0) {
      words[0] = static_cast<uint32_t>(i / 4), words[1] = p.step, words[2] = words[3] = 0;
      philox(words, p.seed_lo, p.seed_hi);
    }
    const float value = l[i] * inv_t + gumbel(words[i % 4]);
    if (kept(l[i], i, cut) && value > best.value) best = {value, static_cast<int32_t>(i)};
  }
  return best;
}

double sum_exp(const float* l, int64_t first, int64_t n, float max) {
  double sum = 0.0;
  for (int64_t i = first; i < first + n; ++i) sum += std::exp(static_cast<double>(l[i]) - max);
  return sum;
}

// --- the gated delta net --------------------------------------------------------------------------

void pack_conv(float* packed, const float* w, int64_t width, int64_t n) {
  for (int64_t c = 0; c < n; ++c)
    for (int64_t j = 0; j < width; ++j) packed[j * n + c] = w[c * width + j];
}

void conv(float* y, const float* const* rows, const float* packed, int64_t width, int64_t n) {
  for (int64_t c = 0; c < n; ++c) {
    float sum = 0.0f;
    for (int64_t j = 0; j < width; ++j) sum += rows[j][c] * packed[j * n + c];
    y[c] = activate(sum, Activation::silu);
  }
}

void l2_norm(float* x, float factor, int64_t n) {
  double squares = 0.0;
  for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  const float by = static_cast<float>(factor / std::sqrt(squares + 1e-6));
  for (int64_t i = 0; i < n; ++i) x[i] *= by;
}

void gates(float* decay, float* beta, const float* a, const float* b, const float* a_log, const float* dt_bias,
           int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double x = static_cast<double>(a[i]) + dt_bias[i];
    const double softplus = std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
    decay[i] = static_cast<float>(std::exp(-std::exp(static_cast<double>(a_log[i])) * softplus));
    beta[i] = static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(b[i]))));
  }
}

void step(const DeltaStep& s) {
  for (int64_t i = 0; i < s.rows; ++i) {
    const float* from = s.from + i * s.key_dim;
    float* to = s.to + i * s.key_dim;
    double held = 0.0, out = 0.0;
    for (int64_t j = 0; j < s.key_dim; ++j) {
      to[j] = from[j] * s.decay;
      held += static_cast<double>(to[j]) * s.k[j];
    }
    const float delta = static_cast<float>(s.beta * (s.v[i] - held));
    for (int64_t j = 0; j < s.key_dim; ++j) {
      to[j] += delta * s.k[j];
      out += static_cast<double>(to[j]) * s.q[j];
    }
    s.y[i] = static_cast<float>(out);
  }
}

}  // namespace

const VectorKernels kernels = {rms_norm,
                               norm_add,
                               add,
                               act_mul,
                               sigmoid_mul,
                               scale_by,
                               softcap,
                               rotate,
                               to_bf16,
                               to_codes,
                               {attention_row, nullptr, nullptr, nullptr},
                               {scan, process, masses, histogram, draw, sum_exp},
                               {pack_conv, conv, l2_norm, gates, step, nullptr}};

}  // namespace saragossa::cpu::scalar
