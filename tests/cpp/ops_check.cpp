// Checks one instruction set's kernels that are not linears against the scalar ones, without Python: for machines
// that are emulated. One line per op; exit 1 when one fails.
//
//   ops_check NAME      NAME: scalar, avx2, avx512, neon

#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/thread_pool.h"
#include "cpu/attention.h"
#include "cpu/sample.h"
#include "cpu/vector_kernels.h"
#include "guarded.h"

using namespace saragossa;
using namespace saragossa::cpu;

namespace {

std::mt19937 rng(1);
int failures = 0;

std::vector<float> normal(int64_t n, float scale = 1.0f) {
  std::normal_distribution<float> d(0.0f, scale);
  std::vector<float> out(static_cast<size_t>(n));
  for (float& x : out) x = d(rng);
  return out;
}

/// Largest difference over the root mean square of what is wanted.
double error(const float* got, const float* want, int64_t n) {
  double worst = 0.0, square = 0.0;
  for (int64_t i = 0; i < n; ++i) {
    if (std::isnan(got[i]) != std::isnan(want[i])) return std::numeric_limits<double>::infinity();
    if (std::isnan(want[i])) continue;
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - want[i]));
    square += static_cast<double>(want[i]) * want[i];
  }
  const double scale = std::sqrt(square / static_cast<double>(n));
  return scale > 0.0 ? worst / scale : worst;
}

void report(const char* op, int cases, double worst, double tolerance) {
  const bool ok = worst <= tolerance;
  std::printf("%-12s %4d cases  error %.1e  (%.0e allowed)  %s\n", op, cases, worst, tolerance, ok ? "ok" : "FAILED");
  if (!ok) ++failures;
}

const int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 20, 31, 32, 33, 63, 64, 65, 100, 127, 257, 1027};

/// fn(kernels, y) writes n values; y begins as the same numbers for both tables.
template <class Fn>
void elementwise(const char* op, const VectorKernels& k, double tolerance, Fn&& fn) {
  double worst = 0.0;
  int cases = 0;
  for (const int64_t n : kSizes) {
    const std::vector<float> start = normal(n, 3.0f);
    Guarded<float> got(start), want(start);
    const Guarded<float> a(normal(n, 4.0f)), b(normal(n));
    fn(k, got.get(), a.get(), b.get(), n);
    fn(scalar::kernels, want.get(), a.get(), b.get(), n);
    worst = std::max(worst, error(got.get(), want.get(), n));
    ++cases;
  }
  report(op, cases, worst, tolerance);
}

void check_elementwise(const VectorKernels& k) {
  using K = const VectorKernels&;
  using F = const float*;
  elementwise("rms_norm", k, 2e-6, [](K t, float* y, F a, F b, int64_t n) { t.rms_norm(y, a, b, 1e-6f, n); });
  elementwise("norm_add", k, 2e-6, [](K t, float* y, F a, F b, int64_t n) { t.norm_add(y, a, b, 1e-6f, n); });
  elementwise("add", k, 0.0, [](K t, float* y, F a, F b, int64_t n) { t.add(y, a, b, n); });
  elementwise("silu", k, 2e-6, [](K t, float* y, F a, F b, int64_t n) { t.act_mul(y, a, b, n, Activation::silu); });
  elementwise("gelu_tanh", k, 2e-6,
              [](K t, float* y, F a, F b, int64_t n) { t.act_mul(y, a, b, n, Activation::gelu_tanh); });
  elementwise("sigmoid_mul", k, 2e-6, [](K t, float* y, F a, F b, int64_t n) { t.sigmoid_mul(y, a, b, n); });
  elementwise("scale", k, 0.0, [](K t, float* y, F, F, int64_t n) { t.scale(y, 0.37f, n); });
  elementwise("softcap", k, 2e-6, [](K t, float* y, F, F, int64_t n) { t.softcap(y, 5.0f, n); });
  elementwise("rotate", k, 2e-6, [](K t, float* y, F a, F b, int64_t n) { t.rotate(y, a, b, n / 2); });
  elementwise("to_bf16", k, 0.0, [](K t, float* y, F a, F, int64_t n) {
    const Guarded<float> in(std::vector<float>(a, a + n));
    in[n - 1] = std::bit_cast<float>(0x7f800001u);  // a NaN whose payload is in the half that goes
    Guarded<uint16_t> out(n);
    t.to_bf16(out.get(), in.get(), n);
    for (int64_t i = 0; i < n; ++i) y[i] = bf16_to_f32(out[i]);
  });
  elementwise("to_codes", k, 0.0, [](K t, float* y, F a, F, int64_t n) {
    Guarded<uint8_t> codes(n);
    Guarded<uint16_t> scales(kv_scales(n));
    t.to_codes(codes.get(), scales.get(), a, n);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = i / SG_KV_GROUP * 2;
      y[i] = static_cast<float>(codes[i]) * bf16_to_f32(scales[at]) + bf16_to_f32(scales[at + 1]);
    }
  });
}

// --- attention ------------------------------------------------------------------------------------------

struct AttentionCase {
  int64_t first, rows, heads, kv_heads, d, block;
  bool bf16;
  int64_t window;
  float softcap;
};

const AttentionCase kAttention[] = {
    {0, 1, 4, 4, 16, 256, true, 0, 0.0f},     {300, 1, 16, 8, 128, 256, true, 0, 0.0f},
    {255, 2, 9, 3, 64, 64, true, 0, 0.0f},    {70, 8, 14, 2, 80, 32, false, 0, 0.0f},
    {77, 3, 6, 1, 72, 16, true, 20, 0.0f},    {50, 2, 5, 1, 20, 16, true, 0, 4.0f},
    {130, 1, 8, 1, 256, 256, true, 0, 0.0f},  {0, 130, 4, 2, 64, 256, true, 0, 0.0f},
    {250, 20, 4, 2, 128, 256, true, 0, 0.0f}, {5, 33, 5, 1, 20, 16, true, 0, 0.0f},
    {100, 90, 4, 2, 96, 64, false, 70, 0.0f}, {0, 40, 4, 2, 72, 24, true, 3, 5.0f},
    {0, 9, 3, 3, 80, 256, true, 0, 0.0f},     {13, 50, 8, 1, 256, 64, true, 0, 0.0f},
};

void check_attention(const VectorKernels& k, ThreadPool& pool) {
  double worst = 0.0;
  int cases = 0;
  AttentionWorkspace space;
  for (const AttentionCase& a : kAttention) {
    const int64_t keys = a.first + a.rows, blocks = (keys + a.block - 1) / a.block;
    // What no row may see is NaN: the keys behind the last, and those before every window.
    const int64_t elements = blocks * a.kv_heads * a.block * a.d;
    const auto cache = [&] {
      std::vector<float> x = normal(elements);
      for (int64_t b = 0; b < blocks; ++b)
        for (int64_t h = 0; h < a.kv_heads; ++h)
          for (int64_t t = 0; t < a.block; ++t) {
            const int64_t key = (blocks - 1 - b) * a.block + t;  // blocks stand in reverse order
            if (key < keys && !(a.window > 0 && key < a.first - a.window + 1)) continue;
            for (int64_t i = 0; i < a.d; ++i)
              x[static_cast<size_t>(((b * a.kv_heads + h) * a.block + t) * a.d + i)] =
                  std::numeric_limits<float>::quiet_NaN();
          }
      std::vector<uint8_t> bytes(x.size() * (a.bf16 ? 2 : 4));
      for (size_t i = 0; i < x.size(); ++i) {
        const uint16_t h = f32_to_bf16(x[i]);
        if (a.bf16)
          std::memcpy(&bytes[2 * i], &h, 2);
        else
          std::memcpy(&bytes[4 * i], &x[i], 4);
      }
      return bytes;
    };
    const Guarded<uint8_t> kc(cache()), vc(cache());
    const Guarded<float> q(normal(a.rows * a.heads * a.d));
    std::vector<int32_t> positions, sequence, table;
    for (int64_t r = 0; r < a.rows; ++r) positions.push_back(static_cast<int32_t>(a.first + r)), sequence.push_back(0);
    for (int64_t b = 0; b < blocks; ++b) table.push_back(static_cast<int32_t>(blocks - 1 - b));
    Guarded<float> got(q.size()), want(q.size());
    AttentionCall c;
    c.q = q.get(), c.k = kc.get(), c.v = vc.get(), c.dtype = a.bf16 ? DType::bf16 : DType::f32;
    c.rows = a.rows, c.heads = a.heads, c.kv_heads = a.kv_heads, c.head_dim = a.d;
    c.blocks = blocks, c.block_tokens = a.block, c.sequences = 1, c.max_blocks = blocks;
    c.positions = positions.data(), c.sequence = sequence.data(), c.block_table = table.data();
    c.scale = 1.0f / std::sqrt(static_cast<float>(a.d)), c.window = a.window, c.softcap = a.softcap;
    c.y = got.get();
    run_attention(c, k, pool, space);
    c.y = want.get();
    run_attention(c, scalar::kernels, pool, space);
    worst = std::max(worst, error(got.get(), want.get(), q.size()));
    ++cases;
  }
  report("attention", cases, worst, 2e-5);  // a score of 8 rounds by 1e-6, and so does its weight
}

// --- sampling -------------------------------------------------------------------------------------------

struct Draw {
  int32_t id = -7;
  std::vector<uint32_t> counts;
  std::vector<float> logprobs = std::vector<float>(6);
  std::vector<int32_t> ids = std::vector<int32_t>(6);
};

Draw draw(const VectorKernels& k, ThreadPool& pool, SampleParams p, const std::vector<float>& logits,
          const std::vector<uint32_t>& counts, const std::vector<uint32_t>& mask) {
  Draw out;
  SampleWorkspace space;
  const Guarded<float> x(logits);
  const Guarded<uint32_t> c(counts), m(mask);
  SampleRow row;
  row.logits = x.get(), row.vocab = x.size(), row.params = &p;
  row.counts = counts.empty() ? nullptr : c.get();
  row.mask = mask.empty() ? nullptr : m.get();
  row.id = &out.id, row.logprobs = out.logprobs.data(), row.logprob_ids = out.ids.data(), row.top = 5;
  run_sample(row, k.sample, pool, space);
  out.counts.assign(c.get(), c.get() + c.size());
  return out;
}

void check_sample(const VectorKernels& k, ThreadPool& pool) {
  double worst = 0.0;
  int cases = 0, wrong = 0;
  for (const int64_t vocab : {1, 5, 31, 64, 65, 1000, 20001})
    for (int variant = 0; variant < 24; ++variant) {
      std::vector<float> logits = normal(vocab, variant % 3 == 0 ? 0.1f : 4.0f);
      if (variant % 5 == 0)
        for (float& x : logits) x = std::floor(x);  // ties
      if (variant == 7) logits[static_cast<size_t>(vocab / 2)] = std::numeric_limits<float>::quiet_NaN();
      std::vector<uint32_t> counts, mask;
      if (variant % 2 == 1)
        for (int64_t i = 0; i < vocab; ++i) counts.push_back(rng() % 4 | (rng() % 2 ? SG_COUNT_PROMPT : 0u));
      if (variant % 4 >= 2) {
        for (int64_t i = 0; i < (vocab + 31) / 32; ++i) mask.push_back(static_cast<uint32_t>(rng()));
        mask[0] |= 1u;
      }
      SampleParams p{};
      p.temperature = variant % 6 == 0 ? 0.0f : 0.5f * static_cast<float>(variant % 4 + 1);
      p.top_p = variant % 3 == 1 ? 0.8f : 1.0f;
      p.min_p = variant % 8 == 5 ? 0.02f : 0.0f;
      p.top_k = variant % 7 == 3 ? 50 : 0;
      p.repetition_penalty = 1.2f, p.presence_penalty = 0.5f, p.frequency_penalty = -0.3f;
      p.seed_lo = static_cast<sg_u32>(rng()), p.seed_hi = static_cast<sg_u32>(rng()), p.step = 3;
      p.top_logprobs = 5;
      const Draw got = draw(k, pool, p, logits, counts, mask),
                 want = draw(scalar::kernels, pool, p, logits, counts, mask);
      wrong += got.id != want.id || got.ids != want.ids || got.counts != want.counts;
      for (int i = 0; i < 6; ++i)
        if (std::isfinite(want.logprobs[static_cast<size_t>(i)]))
          worst = std::max(worst, std::abs(static_cast<double>(got.logprobs[static_cast<size_t>(i)]) -
                                           want.logprobs[static_cast<size_t>(i)]));
      ++cases;
    }
  if (wrong) {
    std::printf("sample: %d of %d cases drew another token\n", wrong, cases);
    ++failures;
  }
  report("sample", cases, worst, 1e-5);
}

const VectorKernels* table(const std::string& name) {
  if (name == "scalar") return &scalar::kernels;
#if defined(__x86_64__)
  if (name == "avx2") return &avx2::kernels;
  if (name == "avx512") return &avx512::kernels;
#elif defined(__aarch64__)
  if (name == "neon") return &neon::kernels;
#endif
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  const VectorKernels* kernels = argc == 2 ? table(argv[1]) : nullptr;
  if (!kernels) {
    std::fprintf(stderr, "usage: ops_check NAME; NAME: a set of this architecture: scalar, avx2, avx512, neon\n");
    return 2;
  }
  ThreadPool pool(2, 0);
  check_elementwise(*kernels);
  check_attention(*kernels, pool);
  check_sample(*kernels, pool);
  std::printf("ops_check %s: %s\n", argv[1], failures ? "FAILED" : "ok");
  return failures ? 1 : 0;
}
