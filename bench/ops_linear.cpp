// Linears of a model's shape against the memory: all the linears of a token (or of a prefill), and in turn with
// them a plain read of the same weights by the same threads.
//
//   ops_linear [--shape qwen3-0.6b|smollm2-135m] [--bits 4] [--group 64] [--isa auto] [--activations int15]
//              [--rows 1] [--threads 1,2] [--repeats 15]
//
//   cmake -S tests/cpp -B build/checks && cmake --build build/checks --target ops_linear
//
// Prints CSV: medians; `of_read` is the share of the read's rate; then the same of the fastest runs, for a busy
// machine.

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "cpu/isa.h"
#include "cpu/linear.h"

namespace {

using namespace saragossa;
using namespace saragossa::cpu;
using Clock = std::chrono::steady_clock;

struct ModelShape {
  int64_t layers, hidden, q, kv, intermediate, vocab;
};

const std::map<std::string, ModelShape> kShapes{
    {"qwen3-0.6b", {28, 1024, 2048, 1024, 3072, 151936}},
    {"smollm2-135m", {30, 576, 576, 192, 1536, 49152}},
};

/// All the weights of a model in one mapping of ordinary pages, as a mapped file has.
class Weights {
 public:
  Weights(const ModelShape& m, int bits, int group, DType dtype) : bits_(bits), group_(group), dtype_(dtype) {
    const int64_t per_layer = m.hidden * (m.q + 2 * m.kv) + m.q * m.hidden + 3 * m.hidden * m.intermediate;
    const int64_t values = per_layer * m.layers + m.hidden * m.vocab;
    bytes_ = values * 4 + (1 << 20);
    base_ = static_cast<uint8_t*>(mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (base_ == MAP_FAILED) std::abort();
    madvise(base_, static_cast<size_t>(bytes_), MADV_NOHUGEPAGE);
    for (int64_t l = 0; l < m.layers; ++l) {
      for (const auto& [out, in] : {std::pair{m.q, m.hidden},
                                    {m.kv, m.hidden},
                                    {m.kv, m.hidden},
                                    {m.hidden, m.q},
                                    {m.intermediate, m.hidden},
                                    {m.intermediate, m.hidden},
                                    {m.hidden, m.intermediate}})
        matrices_.push_back(matrix(out, in));
    }
    matrices_.push_back(matrix(m.vocab, m.hidden));
  }
  const Matrix& operator[](size_t i) const { return matrices_[i]; }
  const uint8_t* base() const { return base_; }
  int64_t used() const { return used_; }

 private:
  uint8_t* take(int64_t n) {
    uint8_t* p = base_ + used_;
    used_ += (n + 63) / 64 * 64;
    return p;
  }
  float random(float scale) {
    seed_ = seed_ * 1664525u + 1013904223u;
    return (static_cast<float>(seed_ >> 8) * 0x1p-23f - 1.0f) * scale;
  }
  void put(uint8_t* p, int64_t n, float scale, float offset) {
    for (int64_t i = 0; i < n; ++i) {
      const float v = random(scale) + offset;
      if (dtype_ == DType::f32) std::memcpy(p + 4 * i, &v, 4);
      const uint16_t h = dtype_ == DType::bf16 ? f32_to_bf16(v) : uint16_t{0x1400};  // f16: 2^-10
      if (dtype_ != DType::f32) std::memcpy(p + 2 * i, &h, 2);
    }
  }
  Matrix matrix(int64_t out, int64_t in) {
    Matrix w;
    w.out = out;
    w.in = in;
    w.bits = bits_;
    w.group = group_;
    w.dtype = dtype_;
    if (bits_ == 0) {
      uint8_t* data = take(out * in * size_of(dtype_));
      put(data, out * in, 0.05f, 0.0f);
      w.data = data;
      return w;
    }
    uint8_t* data = take(out * in * bits_ / 8);
    for (int64_t i = 0; i < out * in * bits_ / 8; ++i) data[i] = static_cast<uint8_t>(random(128.0f));
    const int64_t groups = out * in / group_;
    uint8_t* scales = take(groups * size_of(dtype_));
    put(scales, groups, 0.002f, 0.0f);
    uint8_t* biases = take(groups * size_of(dtype_));
    put(biases, groups, 0.005f, 0.0f);
    w.data = data;
    w.scales = scales;
    w.biases = biases;
    return w;
  }

  int bits_, group_;
  DType dtype_;
  uint8_t* base_ = nullptr;
  int64_t bytes_ = 0, used_ = 0;
  uint32_t seed_ = 1;
  std::vector<Matrix> matrices_;
};

struct Step {
  const ModelShape& m;
  const Weights& weights;
  int64_t rows;
  std::vector<float> x, q, k, v, mid, mid2, logits;

  Step(const ModelShape& shape, const Weights& w, int64_t n) : m(shape), weights(w), rows(n) {
    x.resize(static_cast<size_t>(n * m.hidden));
    q.resize(static_cast<size_t>(n * m.q));
    k.resize(static_cast<size_t>(n * m.kv));
    v.resize(static_cast<size_t>(n * m.kv));
    mid.resize(static_cast<size_t>(n * m.intermediate));
    mid2.resize(static_cast<size_t>(n * m.intermediate));
    logits.resize(static_cast<size_t>(m.vocab));
    for (size_t l = 0; l < static_cast<size_t>(m.layers); ++l) {
      const size_t at = 7 * l;
      add(x.data(), {{weights[at], q.data()}, {weights[at + 1], k.data()}, {weights[at + 2], v.data()}});
      add(q.data(), {{weights[at + 3], x.data()}});
      add(x.data(), {{weights[at + 4], mid.data()}, {weights[at + 5], mid2.data()}}, LinearEpilogue::gated);
      add(mid.data(), {{weights[at + 6], x.data()}});
    }
    add(x.data(), {{weights[7 * static_cast<size_t>(m.layers)], logits.data()}});
    jobs_.back().rows = 1;  // the last row only, as a prefill does
    for (size_t i = 0; i < jobs_.size(); ++i) jobs_[i].next = &jobs_[(i + 1) % jobs_.size()];
  }

  void run(LinearEngine& engine) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
    for (const LinearJob& job : jobs_) engine.run(job);
  }

 private:
  void add(const float* from, std::vector<LinearJob::Out> outs, LinearEpilogue epilogue = LinearEpilogue::store) {
    LinearJob job;
    job.x = from;
    job.rows = rows;
    job.n_outs = static_cast<int>(outs.size());
    for (size_t i = 0; i < outs.size(); ++i) job.outs[i] = outs[i];
    job.epilogue = epilogue;
    jobs_.push_back(job);
  }

  std::vector<LinearJob> jobs_;  // a ring, as the encoder makes it
};

/// Reads all the weights once, a megabyte per task.
void read_all(ThreadPool& pool, const Weights& weights) {
  constexpr int64_t kTask = 1 << 20;
  static std::atomic<uint64_t> sink;
  pool.run(weights.used() / kTask, [&](int64_t task, int) {
    const auto* p = reinterpret_cast<const uint64_t*>(weights.base() + task * kTask);
    uint64_t a[16] = {};
    for (int64_t i = 0; i < kTask / 8; i += 16)
      for (int j = 0; j < 16; ++j) a[j] |= p[i + j];
    uint64_t all = 0;
    for (const uint64_t v : a) all |= v;
    sink.fetch_or(all, std::memory_order_relaxed);
  });
}

template <class Fn>
double seconds(Fn&& fn) {
  const auto start = Clock::now();
  fn();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

double best(const std::vector<double>& v) { return *std::min_element(v.begin(), v.end()); }

std::vector<int> numbers(const std::string& text) {
  std::vector<int> found;
  std::istringstream list(text);
  std::string item;
  while (std::getline(list, item, ',')) found.push_back(std::atoi(item.c_str()));
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options{{"--shape", "qwen3-0.6b"}, {"--bits", "4"},     {"--group", "64"},
                                             {"--isa", "auto"},         {"--rows", "1"},     {"--activations", "int15"},
                                             {"--threads", "1,2"},      {"--repeats", "15"}, {"--dtype", "bf16"}};
  for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  const ModelShape& shape = kShapes.at(options["--shape"]);
  const DType dtype = options["--dtype"] == "f32" ? DType::f32 : options["--dtype"] == "f16" ? DType::f16 : DType::bf16;
  const Activations activations = options["--activations"] == "f32"    ? Activations::f32
                                  : options["--activations"] == "int8" ? Activations::int8
                                                                       : Activations::int15;
  const Weights weights(shape, std::atoi(options["--bits"].c_str()), std::atoi(options["--group"].c_str()), dtype);
  const Isa isa = select(options["--isa"]);
  std::printf("shape,isa,activations,bits,group,rows,threads,ms,tok_s,GB_s,read_GB_s,of_read,best_ms,best_of_read\n");
  for (const int rows : numbers(options["--rows"])) {
    Step step(shape, weights, rows);
    const std::vector<int> threads = numbers(options["--threads"]);
    std::map<int, std::vector<double>> run, read;
    for (int i = 0; i < std::atoi(options["--repeats"].c_str()); ++i) {
      for (const int n : threads) {
        ThreadPool pool(n, 50);
        LinearEngine engine(isa, activations, pool);
        if (i == 0) step.run(engine);
        read[n].push_back(seconds([&] { read_all(pool, weights); }));
        run[n].push_back(seconds([&] { step.run(engine); }));
      }
    }
    for (const int n : threads) {
      const double t = median(run[n]);
      const double r = median(read[n]);
      const double gb = static_cast<double>(weights.used()) * 1e-9;
      std::printf("%s,%s,%s,%s,%s,%d,%d,%.2f,%.1f,%.1f,%.1f,%.2f,%.2f,%.2f\n", options["--shape"].c_str(), name_of(isa),
                  options["--activations"].c_str(), options["--bits"].c_str(), options["--group"].c_str(), rows, n,
                  t * 1e3, rows / t, gb / t, gb / r, r / t, best(run[n]) * 1e3, best(read[n]) / best(run[n]));
    }
  }
  return 0;
}
