#pragma once
// Sampling of the CPU device. Rules: metal/params/sample.h; what every device computes alike is here.
//
// Every formula below is made of single-precision +, *, / and fma, integer operations and conversions, each
// rounded to nearest even, so that instruction sets and devices agree bit for bit:
//
//   l     logit after bias, mask (-inf), repetition (l > 0 ? l / r : l * r), l = fma(-frequency, count, l),
//         l = count > 0 ? l - presence : l
//   z     l * (1 / temperature)
//   word  Philox4x32-10, key (seed_lo, seed_hi), counter (token / 4, step, 0, 0), output word token % 4
//   v     min(fma(float(word), 2^-32, 2^-33), 1 - 2^-24): (0, 1), fine near 0; float(word) to nearest even
//   e     v < 2^-7 ? v (1 + v (1/2 + v (1/3 + v / 4))) : -log(1 - v); exponential, small where v is small
//   g     -log(e): Gumbel, at most kGumbelMax
//   id    the largest z + g, the lowest id on a tie
//   mass  uint32(rint(exp(z - zmax) * 2^30)): sums of it in 64 bits do not depend on their order
//   bucket  int((zmax - z) * 8): never falls where l does not rise, so top-p looks into one of them only
//
// top-k keeps the k largest l (the lower id on a tie). top-p orders what is left by l, then id, and keeps the
// shortest head whose mass is at least (total * uint32(top_p * 2^32)) >> 32, one token at least. min-p keeps
// l >= min((zmax + log(min_p)) * temperature, lmax). log and exp: sample_math.inl.
//
// A NaN among the logits, or a largest l that is not finite (everything masked, an overflow), gives SG_SAMPLE_NAN.

#include <cstdint>
#include <utility>
#include <vector>

#include "core/thread_pool.h"
#include "params/sample.h"

namespace saragossa::cpu {

constexpr int64_t kSampleBlock = 64;    // tokens that share a maximum
constexpr int64_t kSampleChunk = 8192;  // tokens of one task; a multiple of kSampleBlock
constexpr float kGumbelMax = 23.0f;     // above the largest g that the formula gives, 22.9

constexpr int kMassBuckets = 192;  // of 1/8 each; what lies deeper has no mass
constexpr float kBucketsPerUnit = 8.0f;

/// What filters leave: z > value, or z == value and id <= this id. In terms of l, before the temperature.
struct SampleCut {
  float value;
  int32_t id;
};

struct SampleDraw {
  float value;  // z + g
  int32_t id;   // -1: none
};

struct SamplePenalties {
  float repetition = 1.0f, presence = 0.0f, frequency = 0.0f;
};

/// Kernels over l[first, first + n), first a multiple of kSampleBlock; pointers are to the row's start.
struct SampleKernels {
  /// Maximum of each block; true when there is a NaN.
  bool (*scan)(const float* l, int64_t first, int64_t n, float* block_max);
  /// Mask and penalties in place (mask, counts may be null), then as scan; a NaN counts where masked, too.
  bool (*process)(float* l, int64_t first, int64_t n, const uint32_t* mask, const uint32_t* counts,
                  const SamplePenalties& penalties, float* block_max);
  /// out[i] = mass of l[i].
  void (*masses)(const float* l, int64_t n, float inv_t, float z_max, uint32_t* out);
  /// buckets[kMassBuckets] += mass of each token, by sample_bucket.
  void (*histogram)(const float* l, int64_t first, int64_t n, float inv_t, float z_max, const float* block_max,
                    uint64_t* buckets);
  /// The best z + g of what the cut keeps; only what can beat `bound` need be looked at.
  SampleDraw (*draw)(const float* l, int64_t first, int64_t n, float inv_t, const float* block_max, SampleCut cut,
                     const SampleParams& params, float bound);
  /// Sum of exp(l - max).
  double (*sum_exp)(const float* l, int64_t first, int64_t n, float max);
};

/// One row with raw pointers; the optional ones are null.
struct SampleRow {
  const float* logits = nullptr;
  int64_t vocab = 0;
  SampleParams* params = nullptr;
  uint32_t* counts = nullptr;
  const int32_t* bias_ids = nullptr;
  const float* bias = nullptr;
  int64_t bias_size = 0;
  const uint32_t* mask = nullptr;
  int32_t* id = nullptr;
  float* logprobs = nullptr;  // [1 + top], -inf and id -1 where nothing was asked for
  int32_t* logprob_ids = nullptr;
  int64_t top = 0;

  /// The same row of logits with another row of what belongs to a request.
  SampleRow of_request(int64_t i) const {
    SampleRow out = *this;
    out.params += i;
    if (counts) out.counts += i * vocab;
    if (bias_ids) out.bias_ids += i * bias_size;
    if (bias) out.bias += i * bias_size;
    if (mask) out.mask += i * ((vocab + 31) / 32);
    return out;
  }
};

struct SampleCandidate {
  float l;
  int32_t id;
  uint32_t mass;
};

struct SampleWorkspace {
  std::vector<float> l, block_max, sorted_max;
  std::vector<SampleCandidate> candidates;
  std::vector<SampleDraw> draws;
  std::vector<float> gathered;
  std::vector<uint32_t> masses;
  std::vector<uint64_t> buckets;
  std::vector<double> sums;
};

void run_sample(const SampleRow& row, const SampleKernels& kernels, ThreadPool& pool, SampleWorkspace& space);

}  // namespace saragossa::cpu
