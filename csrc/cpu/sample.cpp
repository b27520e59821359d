#include "cpu/sample.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

namespace saragossa::cpu {
#include "cpu/sample_math.inl"
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr SampleCut kKeepAll{-kInfinity, std::numeric_limits<int32_t>::max()};

bool before(const SampleCandidate& a, const SampleCandidate& b) { return a.l > b.l || (a.l == b.l && a.id < b.id); }

int64_t chunks_of(int64_t n) { return (n + kSampleChunk - 1) / kSampleChunk; }

/// fn(chunk, first, count) over the vocabulary.
template <class Fn>
void over_chunks(ThreadPool& pool, int64_t vocab, Fn&& fn) {
  const int64_t chunks = chunks_of(vocab);
  const auto one = [&](int64_t chunk, int) {
    const int64_t first = chunk * kSampleChunk;
    fn(chunk, first, std::min(kSampleChunk, vocab - first));
  };
  if (chunks <= 2)
    for (int64_t c = 0; c < chunks; ++c) one(c, 0);
  else
    pool.run(chunks, one);
}

struct Sampler {
  const SampleRow& row;
  const SampleKernels& kernels;
  ThreadPool& pool;
  SampleWorkspace& space;
  const float* l = nullptr;  // logits, or the processed copy
  int64_t blocks = 0;

  int64_t vocab() const { return row.vocab; }
  int64_t block_end(int64_t b) const { return std::min((b + 1) * kSampleBlock, vocab()); }

  SamplePenalties penalties() const {
    if (!row.counts) return {};
    return {row.params->repetition_penalty, row.params->presence_penalty, row.params->frequency_penalty};
  }

  bool scan(const float* logits) {
    std::atomic<bool> nan{false};
    over_chunks(pool, vocab(), [&](int64_t, int64_t first, int64_t n) {
      if (kernels.scan(logits, first, n, space.block_max.data())) nan = true;
    });
    return nan;
  }

  /// Bias, mask, penalties; fills block_max. False when a logit is NaN or the maximum is not finite.
  bool prepare() {
    blocks = (vocab() + kSampleBlock - 1) / kSampleBlock;
    space.block_max.resize(static_cast<size_t>(blocks));
    const SamplePenalties p = penalties();
    const bool penalised = p.repetition != 1.0f || p.presence != 0.0f || p.frequency != 0.0f;
    const int64_t n_bias = row.bias_ids ? std::min<int64_t>(row.params->n_bias, row.bias_size) : 0;
    bool nan = false;
    if (!penalised && !row.mask && n_bias <= 0) {
      l = row.logits;
      nan = scan(l);
    } else {
      space.l.resize(static_cast<size_t>(vocab()));
      float* out = space.l.data();
      l = out;
      std::copy_n(row.logits, vocab(), out);
      for (int64_t i = 0; i < n_bias; ++i)
        if (row.bias_ids[i] >= 0 && row.bias_ids[i] < vocab()) out[row.bias_ids[i]] += row.bias[i];
      std::atomic<bool> found{false};
      over_chunks(pool, vocab(), [&](int64_t, int64_t first, int64_t n) {
        const uint32_t* counts = penalised ? row.counts : nullptr;
        if (kernels.process(out, first, n, row.mask, counts, p, space.block_max.data())) found = true;
      });
      nan = found;
    }
    return !nan && std::isfinite(max());
  }

  float max() const { return *std::max_element(space.block_max.begin(), space.block_max.end()); }

  int32_t argmax() const {
    const float best = max();
    const int64_t b = std::find(space.block_max.begin(), space.block_max.end(), best) - space.block_max.begin();
    return static_cast<int32_t>(std::find(l + b * kSampleBlock, l + block_end(b), best) - l);
  }

  /// Candidates of `values` with at least `floor`, from the blocks that have one.
  void collect(const float* values, float floor) {
    space.candidates.clear();
    for (int64_t b = 0; b < blocks; ++b) {
      if (!(space.block_max[static_cast<size_t>(b)] >= floor)) continue;
      for (int64_t i = b * kSampleBlock; i < block_end(b); ++i)
        if (values[i] >= floor) space.candidates.push_back({values[i], static_cast<int32_t>(i), 0});
    }
  }

  /// At least k largest of `values`: the k-th largest block maximum is no more than the k-th largest value.
  void collect_top(const float* values, int64_t k) {
    float floor = -kInfinity;
    if (k < blocks) {
      space.sorted_max = space.block_max;
      std::nth_element(space.sorted_max.begin(), space.sorted_max.begin() + (k - 1), space.sorted_max.end(),
                       std::greater<>());
      floor = space.sorted_max[static_cast<size_t>(k - 1)];
    }
    collect(values, floor);
  }

  /// Cut behind the k-th candidate, which leaves the k first in the list.
  SampleCut keep_first(int64_t k) {
    auto& list = space.candidates;
    if (k > static_cast<int64_t>(list.size())) return kKeepAll;
    std::nth_element(list.begin(), list.begin() + (k - 1), list.end(), before);
    list.resize(static_cast<size_t>(k));
    return {list.back().l, list.back().id};
  }

  /// Fills in the masses of the candidates; their sum.
  uint64_t weigh(float inv_t, float z_max) {
    auto& list = space.candidates;
    space.gathered.resize(list.size());
    space.masses.resize(list.size());
    for (size_t i = 0; i < list.size(); ++i) space.gathered[i] = list[i].l;
    kernels.masses(space.gathered.data(), static_cast<int64_t>(list.size()), inv_t, z_max, space.masses.data());
    uint64_t sum = 0;
    for (size_t i = 0; i < list.size(); ++i) sum += list[i].mass = space.masses[i];
    return sum;
  }

  /// The shortest head of the candidates with `target` of mass: a quickselect by mass. The list must hold it.
  SampleCut keep_mass(uint64_t target) {
    auto& list = space.candidates;
    auto begin = list.begin(), end = list.end();  // the cut is in here; `target` is what is missing before begin
    while (end - begin > 1) {
      // Median of three as the pivot.
      SampleCandidate a = *begin, b = begin[(end - begin) / 2], c = end[-1];
      if (before(b, a)) std::swap(a, b);
      if (before(c, b)) b = before(c, a) ? a : c;
      const auto middle = std::partition(begin, end, [&](const SampleCandidate& x) { return !before(b, x); });
      uint64_t head = 0;  // mass up to the pivot, itself included
      for (auto it = begin; it != middle; ++it) head += it->mass;
      if (head < target) {
        target -= head;
        begin = middle;
      } else if (middle != end) {
        end = middle;
      } else if (head - b.mass < target) {  // the pivot is the last, and needed
        return {b.l, b.id};
      } else {
        std::iter_swap(std::find_if(begin, end, [&](const SampleCandidate& x) { return x.id == b.id; }), end - 1);
        --end;
      }
    }
    return {begin->l, begin->id};
  }

  /// top-k, top-p and min-p as one cut.
  SampleCut filters(float inv_t, float l_max) {
    const SampleParams& p = *row.params;
    const float z_max = l_max * inv_t;
    SampleCut cut = kKeepAll;
    const bool by_k = p.top_k > 0 && p.top_k < vocab();
    if (by_k) {
      collect_top(l, p.top_k);
      cut = keep_first(p.top_k);
    }
    if (p.top_p < 1.0f) cut = top_p(inv_t, l_max, by_k);
    if (p.min_p > 0.0f) {
      const float log_min = log_positive(std::max(p.min_p, std::numeric_limits<float>::min()));
      const float floor = std::min((z_max + log_min) * p.temperature, l_max);
      if (floor > cut.value) cut = {floor, std::numeric_limits<int32_t>::max()};
    }
    return cut;
  }

  SampleCut top_p(float inv_t, float l_max, bool collected) {
    const float z_max = l_max * inv_t;
    const auto p32 = static_cast<uint64_t>(static_cast<double>(row.params->top_p) * 0x1p32);
    const auto share = [&](uint64_t total) { return ((total >> 32) * p32) + (((total & 0xffffffffu) * p32) >> 32); };
    if (collected) {
      const uint64_t total = weigh(inv_t, z_max);
      return keep_mass(share(total));
    }
    const int64_t chunks = chunks_of(vocab());
    space.buckets.assign(static_cast<size_t>(chunks * kMassBuckets), 0);
    over_chunks(pool, vocab(), [&](int64_t chunk, int64_t first, int64_t n) {
      kernels.histogram(l, first, n, inv_t, z_max, space.block_max.data(), &space.buckets[chunk * kMassBuckets]);
    });
    uint64_t* buckets = space.buckets.data();
    uint64_t total = 0;
    for (int b = 0; b < kMassBuckets; ++b) {
      for (int64_t c = 1; c < chunks; ++c) buckets[b] += buckets[c * kMassBuckets + b];
      total += buckets[b];
    }
    const uint64_t target = share(total);
    int bucket = 0;
    uint64_t head = buckets[0];
    while (head < target) head += buckets[++bucket];
    collect_bucket(inv_t, z_max, bucket);
    weigh(inv_t, z_max);
    const uint64_t earlier = head - buckets[bucket];
    return keep_mass(target > earlier ? target - earlier : 0);
  }

  void collect_bucket(float inv_t, float z_max, int bucket) {
    space.candidates.clear();
    const auto at = [&](float x) { return sample_bucket(x * inv_t, z_max); };
    for (int64_t b = 0; b < blocks; ++b) {
      if (at(space.block_max[static_cast<size_t>(b)]) > bucket) continue;
      for (int64_t i = b * kSampleBlock; i < block_end(b); ++i)
        if (at(l[i]) == bucket) space.candidates.push_back({l[i], static_cast<int32_t>(i), 0});
    }
  }

  int32_t draw(float inv_t, SampleCut cut) {
    const float bound_first = first_bound(inv_t, cut);
    space.draws.assign(static_cast<size_t>(chunks_of(vocab())), {-kInfinity, -1});
    over_chunks(pool, vocab(), [&](int64_t chunk, int64_t first, int64_t n) {
      space.draws[static_cast<size_t>(chunk)] =
          kernels.draw(l, first, n, inv_t, space.block_max.data(), cut, *row.params, bound_first);
    });
    SampleDraw best{-kInfinity, -1};
    for (const SampleDraw& d : space.draws)
      if (d.id >= 0 && d.value > best.value) best = d;
    return best.id;
  }

  /// The draw of the block with the maximum: others must beat it.
  float first_bound(float inv_t, SampleCut cut) const {
    const int64_t b = std::max_element(space.block_max.begin(), space.block_max.end()) - space.block_max.begin();
    const int64_t first = b * kSampleBlock;
    return kernels.draw(l, first, block_end(b) - first, inv_t, space.block_max.data(), cut, *row.params, -kInfinity)
        .value;
  }

  void logprobs(int32_t drawn) {
    if (!row.logprobs) return;
    std::fill_n(row.logprobs, 1 + row.top, -kInfinity);
    std::fill_n(row.logprob_ids, 1 + row.top, -1);
    const int64_t n = std::min<int64_t>(row.params->top_logprobs, row.top);
    if (n < 0 || drawn < 0) return;
    if (l != row.logits) scan(row.logits);
    const float top = max();
    space.sums.assign(static_cast<size_t>(chunks_of(vocab())), 0.0);
    over_chunks(pool, vocab(), [&](int64_t chunk, int64_t first, int64_t count) {
      space.sums[static_cast<size_t>(chunk)] = kernels.sum_exp(row.logits, first, count, top);
    });
    double sum = 0.0;
    for (const double s : space.sums) sum += s;
    const double log_sum = std::log(sum);
    const auto logprob = [&](float x) { return static_cast<float>(static_cast<double>(x) - top - log_sum); };
    row.logprobs[0] = logprob(row.logits[drawn]);
    row.logprob_ids[0] = drawn;
    if (n == 0) return;
    collect_top(row.logits, n);
    keep_first(n);
    std::sort(space.candidates.begin(), space.candidates.end(), before);
    for (size_t i = 0; i < std::min(space.candidates.size(), static_cast<size_t>(n)); ++i) {
      row.logprobs[1 + i] = logprob(space.candidates[i].l);
      row.logprob_ids[1 + i] = space.candidates[i].id;
    }
  }

  void run() {
    SampleParams& p = *row.params;
    int32_t id = SG_SAMPLE_NAN;
    if (prepare()) {
      if (p.temperature <= 0.0f) {
        id = argmax();
      } else {
        const float inv_t = 1.0f / p.temperature;
        id = draw(inv_t, filters(inv_t, max()));
      }
    }
    *row.id = id;
    logprobs(id);
    if (row.counts && id >= 0) ++row.counts[id];
    ++p.step;
  }
};

}  // namespace

void run_sample(const SampleRow& row, const SampleKernels& kernels, ThreadPool& pool, SampleWorkspace& space) {
  Sampler{row, kernels, pool, space}.run();
}

}  // namespace saragossa::cpu
