// Scalar forms of the sampling formulas of sample.h. Included inside a namespace of each instruction set, so that
// no function compiled for one set can stand in for another's; needs <bit>, <cmath>, <cstdint>.

namespace {

// exp(x) for x <= 0: x = n ln 2 + r, |r| <= ln 2 / 2; 1 + r + r^2 p(r), p minimax (3e-9); below -87: 0.
constexpr float kLog2e = 1.44269504088896341f;
constexpr float kLn2Hi = 0.693145751953125f;
constexpr float kLn2Lo = 1.42860682030941723212e-6f;
constexpr float kExp0 = 0.49999994f, kExp1 = 0.16666521f, kExp2 = 0.04166839f, kExp3 = 0.008368745f,
                kExp4 = 0.0013814539f;

// log(x), x a positive normal: x = 2^k m, m in [2/3, 4/3), f = m - 1; f + f^2 p(f), p minimax (3e-8 of the value).
constexpr uint32_t kTwoThirds = 0x3f2aaaabu;
constexpr float kLn2 = 0.693147180559945309f;
constexpr float kLog0 = -0.49999934434890747f, kLog1 = 0.33333197236061096f, kLog2 = -0.25007835030555725f,
                kLog3 = 0.2001114934682846f, kLog4 = -0.16415631771087646f, kLog5 = 0.13996148109436035f,
                kLog6 = -0.15390504896640778f, kLog7 = 0.14024566113948822f;

[[maybe_unused]] inline float exp_at_most_0(float x) {
  if (!(x >= -87.0f)) return 0.0f;
  const float n = std::nearbyint(x * kLog2e);
  const float r = std::fma(n, -kLn2Lo, std::fma(n, -kLn2Hi, x));
  float p = std::fma(kExp4, r, kExp3);
  p = std::fma(p, r, kExp2);
  p = std::fma(p, r, kExp1);
  p = std::fma(p, r, kExp0);
  p = std::fma(p, r * r, r) + 1.0f;
  return p * std::bit_cast<float>(static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23);
}

[[maybe_unused]] inline float log_positive(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const int32_t k = static_cast<int32_t>(u - kTwoThirds) >> 23;
  const float f = std::bit_cast<float>(u - (static_cast<uint32_t>(k) << 23)) - 1.0f;
  float p = std::fma(kLog7, f, kLog6);
  p = std::fma(p, f, kLog5);
  p = std::fma(p, f, kLog4);
  p = std::fma(p, f, kLog3);
  p = std::fma(p, f, kLog2);
  p = std::fma(p, f, kLog1);
  p = std::fma(p, f, kLog0);
  p = std::fma(p, f * f, f);
  return std::fma(static_cast<float>(k), kLn2, p);
}

[[maybe_unused]] inline void philox(uint32_t c[4], uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = static_cast<uint64_t>(c[0]) * 0xD2511F53u;
    const uint64_t b = static_cast<uint64_t>(c[2]) * 0xCD9E8D57u;
    const uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ key0, static_cast<uint32_t>(b),
                              static_cast<uint32_t>(a >> 32) ^ c[3] ^ key1, static_cast<uint32_t>(a)};
    for (int i = 0; i < 4; ++i) c[i] = next[i];
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

[[maybe_unused]] inline float gumbel(uint32_t word) {
  const float v = std::fmin(std::fma(static_cast<float>(word), 0x1p-32f, 0x1p-33f), 1.0f - 0x1p-24f);
  const float series = v * std::fma(v, std::fma(v, std::fma(v, 0.25f, 1.0f / 3.0f), 0.5f), 1.0f);
  const float e = v < 0x1p-7f ? series : -log_positive(1.0f - v);
  return -log_positive(e);
}

[[maybe_unused]] inline uint32_t mass_of(float z, float z_max) {
  return static_cast<uint32_t>(std::nearbyint(exp_at_most_0(z - z_max) * 0x1p30f));
}

[[maybe_unused]] inline int sample_bucket(float z, float z_max) {
  const float at = (z_max - z) * kBucketsPerUnit;
  return at < static_cast<float>(kMassBuckets) ? static_cast<int>(at) : kMassBuckets;
}

}  // namespace
