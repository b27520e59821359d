// Checks one instruction set's kernels of the gated delta net against the scalar ones, without Python: for machines
// that are emulated. One line per kernel; exit 1 when one fails.
//
//   delta_check NAME      NAME: scalar, avx2, avx512, neon

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "cpu/gated_delta.h"
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

/// Largest difference over the root mean square of what is wanted; infinite where a number is none.
double error(const Guarded<float>& got, const Guarded<float>& want) {
  double worst = 0.0, square = 0.0;
  for (int64_t i = 0; i < want.size(); ++i) {
    const double difference = std::abs(static_cast<double>(got[i]) - want[i]);
    if (!std::isfinite(difference)) return INFINITY;
    worst = std::max(worst, difference);
    square += static_cast<double>(want[i]) * want[i];
  }
  const double scale = std::sqrt(square / static_cast<double>(want.size()));
  return scale > 0.0 ? worst / scale : worst;
}

void report(const char* op, int cases, double worst, double tolerance) {
  const bool ok = worst <= tolerance;
  std::printf("%-12s %4d cases  error %.1e  (%.0e allowed)  %s\n", op, cases, worst, tolerance, ok ? "ok" : "FAILED");
  if (!ok) ++failures;
}

const int64_t kSizes[] = {1, 3, 4, 7, 8, 12, 15, 16, 20, 33, 64, 100, 128, 513};

void check_conv(const DeltaKernels& k) {
  double worst = 0.0;
  int cases = 0;
  for (const int64_t n : kSizes)
    for (const int64_t width : {1, 2, 3, 4, 5, 16}) {
      const Guarded<float> w(normal(n * width)), x(normal(n * width));
      Guarded<float> packed(n * width), got(n), want(n);
      std::array<const float*, kMostConvWidth> rows{};
      for (int64_t j = 0; j < width; ++j) rows[static_cast<size_t>(j)] = x.get() + j * n;
      k.pack_conv(packed.get(), w.get(), width, n);
      k.conv(got.get(), rows.data(), packed.get(), width, n);
      scalar::kernels.delta.pack_conv(packed.get(), w.get(), width, n);
      scalar::kernels.delta.conv(want.get(), rows.data(), packed.get(), width, n);
      worst = std::max(worst, error(got, want));
      ++cases;
    }
  report("conv", cases, worst, 2e-6);
}

void check_rows(const DeltaKernels& k) {
  double norm = 0.0, gate = 0.0;
  int cases = 0;
  for (const int64_t n : kSizes)
    for (const float scale : {1e-3f, 1.0f, 30.0f}) {
      const std::vector<float> x = normal(n, scale);
      const Guarded<float> got(x), want(x);
      k.l2_norm(got.get(), 0.5f, n);
      scalar::kernels.delta.l2_norm(want.get(), 0.5f, n);
      norm = std::max(norm, error(got, want));
      const Guarded<float> a(x), b(normal(n, scale)), a_log(normal(n)), bias(normal(n));
      Guarded<float> decay(n), beta(n), decay2(n), beta2(n);
      k.gates(decay.get(), beta.get(), a.get(), b.get(), a_log.get(), bias.get(), n);
      scalar::kernels.delta.gates(decay2.get(), beta2.get(), a.get(), b.get(), a_log.get(), bias.get(), n);
      gate = std::max({gate, error(decay, decay2), error(beta, beta2)});
      ++cases;
    }
  report("l2_norm", cases, norm, 2e-6);
  report("gates", cases, gate, 2e-6);
}

/// A run of one head: rows one by one with the scalar set, and whole chunks, or rows, with the other.
struct Head {
  int64_t rows, key_dim, value_rows;
  Guarded<float> qkv, decay, beta, state, y;

  Head(int64_t t, int64_t keys, int64_t values, const std::array<std::vector<float>, 4>& from)
      : rows(t),
        key_dim(keys),
        value_rows(values),
        qkv(from[0]),
        decay(from[1]),
        beta(from[2]),
        state(from[3]),
        y(t * values) {}

  int64_t stride() const { return 2 * key_dim + value_rows; }

  void row_by_row(const DeltaKernels& k) {
    for (int64_t t = 0; t < rows; ++t) {
      const float* x = qkv.get() + t * stride();
      k.step({state.get(), state.get(), x, x + key_dim, x + 2 * key_dim, y.get() + t * value_rows, decay[t], beta[t],
              value_rows, key_dim});
    }
  }
  void chunked(const DeltaKernels& k) {
    DeltaChunks c;
    c.to = state.get();
    c.from = state.get();
    c.q = qkv.get();
    c.k = c.q + key_dim;
    c.v = c.k + key_dim;
    c.stride = stride();
    c.y = y.get();
    c.y_stride = value_rows;
    c.decay = decay.get();
    c.beta = beta.get();
    c.gate_stride = 1;
    c.count = rows / kDeltaChunk;
    c.rows = value_rows;
    c.key_dim = key_dim;
    Guarded<float> work(delta_chunk_work(value_rows, key_dim));
    std::fill_n(work.get(), work.size(), std::nanf(""));
    k.chunks(c, work.get());
  }
};

std::array<std::vector<float>, 4> inputs(int64_t rows, int64_t keys, int64_t values, float least_decay) {
  std::array<std::vector<float>, 4> out{normal(rows * (2 * keys + values)), {}, {}, normal(keys * values)};
  std::uniform_real_distribution<float> decay(least_decay, 1.0f), beta(0.0f, 1.0f);
  for (int64_t t = 0; t < rows; ++t) {
    out[1].push_back(t % 17 == 3 ? 0.0f : decay(rng));
    out[2].push_back(beta(rng));
    float* x = out[0].data() + t * (2 * keys + values);
    scalar::kernels.delta.l2_norm(x, 0.3f, keys);
    scalar::kernels.delta.l2_norm(x + keys, 1.0f, keys);
  }
  return out;
}

void check_rule(const DeltaKernels& k) {
  double step = 0.0, chunk = 0.0;
  int steps = 0, chunks = 0;
  for (const int64_t keys : {4, 12, 20, 72, 128})
    for (const int64_t values : {1, 7, 32, 40, 128})
      for (const float least : {0.0f, 0.9f, 0.9999f}) {
        const auto from = inputs(128, keys, values, least);
        Head got(128, keys, values, from), want(128, keys, values, from);
        want.row_by_row(scalar::kernels.delta);
        got.row_by_row(k);
        step = std::max({step, error(got.y, want.y), error(got.state, want.state)});
        ++steps;
        if (!k.chunks) continue;
        Head whole(128, keys, values, from);
        whole.chunked(k);
        chunk = std::max({chunk, error(whole.y, want.y), error(whole.state, want.state)});
        ++chunks;
      }
  report("step", steps, step, 1e-5);
  if (k.chunks) report("chunks", chunks, chunk, 1e-5);
}

const DeltaKernels* table(const std::string& name) {
  if (name == "scalar") return &scalar::kernels.delta;
#if defined(__x86_64__)
  if (name == "avx2") return &avx2::kernels.delta;
  if (name == "avx512") return &avx512::kernels.delta;
#elif defined(__aarch64__)
  if (name == "neon") return &neon::kernels.delta;
#endif
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  const DeltaKernels* kernels = argc == 2 ? table(argv[1]) : nullptr;
  if (!kernels) {
    std::fprintf(stderr, "usage: delta_check NAME; NAME: a set of this architecture: scalar, avx2, avx512, neon\n");
    return 2;
  }
  check_conv(*kernels);
  check_rows(*kernels);
  check_rule(*kernels);
  std::printf("delta_check %s: %s\n", argv[1], failures ? "FAILED" : "ok");
  return failures ? 1 : 0;
}
