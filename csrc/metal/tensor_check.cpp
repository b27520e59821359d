#include "metal/tensor_check.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "metal/linear.h"

namespace saragossa::metal {
namespace {

// Each format of a weight is a pipeline of its own, and so are 32 and 64 rows of a threadgroup and the gated epilogue.
// Rows at which compilers are known to have gone wrong, and the edges of the tiles; 150 has tiles in both directions.
struct Case {
  int64_t rows, depth;  // depth: inputs of a split, 0 for all
  int bits;             // 0: dense
  DType dtype;          // of scales and biases, or of a dense weight; u8: mxfp4, mxfp8
  bool gated = false;
};
constexpr Case kCases[] = {
    {1, 0, 4, DType::f32},   {8, 0, 6, DType::bf16},        {9, 128, 8, DType::bf16}, {16, 0, 4, DType::bf16},
    {16, 0, 0, DType::f16},  {32, 128, 0, DType::bf16},     {33, 0, 4, DType::bf16},  {64, 0, 6, DType::f16},
    {64, 0, 8, DType::bf16}, {150, 0, 4, DType::f16},       {150, 0, 0, DType::bf16}, {100, 0, 0, DType::f16},
    {150, 0, 6, DType::f32}, {70, 0, 4, DType::bf16, true}, {12, 0, 2, DType::bf16},  {40, 0, 3, DType::bf16},
    {24, 0, 5, DType::bf16}, {48, 0, 5, DType::f16},        {20, 0, 4, DType::u8},    {66, 0, 8, DType::u8},
};
constexpr int64_t kIn = 320, kOut = 200;
constexpr int kGroup = 64;
// Of the root mean square of a row: rounding to half gives about 3e-4, a wrong element 1.
constexpr float kTolerance = 5e-3f;
constexpr float kGatedTolerance = 2e-2f;  // the largest products of two sums lie further from the root mean square

class Numbers {
 public:
  uint32_t next() { return state_ = state_ * 1664525u + 1013904223u; }
  /// Even in [-1, 1).
  float real() { return static_cast<float>(static_cast<int32_t>(next())) * 0x1p-31f; }

 private:
  uint32_t state_ = 7;
};

Tensor random(Device& device, Numbers& numbers, Shape shape, float scale) {
  Tensor t = device.tensor(DType::f32, shape);
  for (int64_t i = 0; i < t.numel(); ++i) host_data<float>(t)[i] = scale * numbers.real();
  return t;
}

/// Cut to half; what is too small for it is 0.
uint16_t half_of(float f) {
  const auto bits = std::bit_cast<uint32_t>(f);
  const uint32_t sign = (bits >> 16) & 0x8000u, exponent = (bits >> 23) & 0xffu, mantissa = (bits >> 13) & 0x3ffu;
  return exponent <= 112 ? 0 : static_cast<uint16_t>(sign | ((exponent - 112) << 10) | mantissa);
}

Tensor random(Device& device, Numbers& numbers, DType dtype, Shape shape, float scale) {
  if (dtype == DType::f32) return random(device, numbers, shape, scale);
  Tensor t = device.tensor(dtype, shape);
  for (int64_t i = 0; i < t.numel(); ++i) {
    const float value = scale * numbers.real();
    host_data<uint16_t>(t)[i] = dtype == DType::f16 ? half_of(value) : f32_to_bf16(value);
  }
  return t;
}

Weight random_weight(Device& device, Numbers& numbers, const Case& of) {
  if (of.bits == 0) return {kOut, kIn, 0, 0, random(device, numbers, of.dtype, {kOut, kIn}, 0.1f), {}, {}};
  Weight w{kOut, kIn, of.bits, kGroup, device.tensor(DType::u32, {kOut, kIn * of.bits / 32}), {}, {}};
  for (int64_t i = 0; i < w.data.numel(); ++i) host_data<uint32_t>(w.data)[i] = numbers.next() ^ numbers.next() >> 16;
  if (of.dtype == DType::u8) {
    w.format = of.bits == 4 ? Format::mxfp4 : Format::mxfp8;
    w.group = 32;
    if (of.bits == 8)  // no NaN, and of one size with what is too small for half
      for (int64_t i = 0; i < w.data.numel(); ++i) host_data<uint32_t>(w.data)[i] &= 0xb7b7b7b7u;
    w.scales = device.tensor(DType::u8, {kOut, kIn / w.group});
    for (int64_t i = 0; i < w.scales.numel(); ++i)
      host_data<uint8_t>(w.scales)[i] = static_cast<uint8_t>(121 + numbers.next() % 5);
    return w;
  }
  w.scales = random(device, numbers, of.dtype, {kOut, kIn / kGroup}, 0.02f);
  w.biases = random(device, numbers, of.dtype, {kOut, kIn / kGroup}, 0.1f);
  return w;
}

/// Largest difference of a row over the root mean square of what is wanted; what is not finite counts as infinite.
float worst_difference(const Tensor& got, const Tensor& want) {
  float worst = 0.0f;
  for (int64_t t = 0; t < want.shape[0]; ++t) {
    const float* g = host_data<float>(got) + t * kOut;
    const float* w = host_data<float>(want) + t * kOut;
    double squares = 0.0;
    float most = 0.0f;
    for (int64_t o = 0; o < kOut; ++o) {
      squares += double{w[o]} * w[o];
      const float difference = std::abs(g[o] - w[o]);
      if (!std::isfinite(difference)) return INFINITY;
      most = std::max(most, difference);
    }
    worst = std::max(worst, most / static_cast<float>(std::sqrt(squares / kOut)));
  }
  return worst;
}

std::string name_of(const Case& of) {
  if (of.dtype == DType::u8) return message(of.rows, " rows of mxfp", of.bits);
  return message(of.rows, " rows of ", of.bits > 0 ? message(of.bits, " bits with ") : "dense ",
                 saragossa::name_of(of.dtype), of.gated ? ", gated" : "");
}

std::string compare(Device& device) {
  struct Pair {
    const Case* of;
    Tensor x, got, want;
    Weight weight, up;
  };
  Numbers numbers;
  std::vector<Pair> pairs;
  pairs.reserve(std::size(kCases));
  const auto encoder = device.begin();
  auto& metal = static_cast<MetalEncoder&>(*encoder);
  for (const Case& of : kCases) {
    const int64_t splits = of.depth > 0 ? (kIn + of.depth - 1) / of.depth : 1;
    const Shape shape{splits * of.rows, kOut};
    // Jobs of very different size: the scale of a row is part of what is checked.
    const float scale = std::ldexp(1.0f, static_cast<int>(of.rows % 40) - 20);
    pairs.push_back({&of, random(device, numbers, {of.rows, kIn}, scale), device.tensor(DType::f32, shape),
                     device.tensor(DType::f32, shape), random_weight(device, numbers, of),
                     of.gated ? random_weight(device, numbers, of) : Weight{}});
    const Pair& pair = pairs.back();
    const std::array<LinearOut, 2> got{{{pair.got, &pair.weight, {}}, {{}, &pair.up, {}}}};
    const std::array<LinearOut, 2> want{{{pair.want, &pair.weight, {}}, {{}, &pair.up, {}}}};
    const size_t outs = of.gated ? 2 : 1;
    LinearJob job{pair.x, {got.data(), outs}, of.gated ? uint32_t{SG_GATED} : uint32_t{SG_STORE}};
    job.depth[0] = of.depth;
    launch_matmul_tensor(metal, job);
    job.outs = {want.data(), outs};
    launch_matmul(metal, job);
  }
  encoder->submit().wait();
  for (const Pair& pair : pairs) {
    const float worst = worst_difference(pair.got, pair.want);
    if (!(worst <= (pair.of->gated ? kGatedTolerance : kTolerance)))
      return message("at ", name_of(*pair.of), " they are off by ", worst);
  }
  return {};
}

}  // namespace

std::string check_tensor_ops(Device& device) {
  try {
    return compare(device);
  } catch (const Error& error) {
    return error.what();  // a system whose compiler refuses the kernel still has the other ones
  }
}

}  // namespace saragossa::metal
