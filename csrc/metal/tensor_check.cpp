#include "metal/tensor_check.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "metal/linear.h"

namespace saragossa::metal {
namespace {

// Rows at which compilers are known to have gone wrong, and the edges of the tiles; the last has tiles in both
// directions. Depth: inputs of a split, 0 for all.
struct Size {
  int64_t rows, depth;
};
constexpr Size kSizes[] = {{1, 0}, {8, 0}, {9, 128}, {16, 0}, {32, 128}, {33, 0}, {64, 0}, {150, 0}};
constexpr int64_t kIn = 320, kOut = 200;
constexpr int kGroup = 64;
// Of the root mean square of a row: rounding to half gives about 3e-4, a wrong element 1.
constexpr float kTolerance = 5e-3f;

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

Weight random_weight(Device& device, Numbers& numbers) {
  Weight w{kOut, kIn, 4, kGroup, device.tensor(DType::u32, {kOut, kIn / 8}), {}, {}};
  for (int64_t i = 0; i < w.data.numel(); ++i) host_data<uint32_t>(w.data)[i] = numbers.next() ^ numbers.next() >> 16;
  w.scales = random(device, numbers, {kOut, kIn / kGroup}, 0.02f);
  w.biases = random(device, numbers, {kOut, kIn / kGroup}, 0.1f);
  return w;
}

/// Largest difference of a row over the root mean square of what is wanted; NaN counts as infinite.
float worst_difference(const Tensor& got, const Tensor& want) {
  float worst = 0.0f;
  for (int64_t t = 0; t < want.shape[0]; ++t) {
    const float* g = host_data<float>(got) + t * kOut;
    const float* w = host_data<float>(want) + t * kOut;
    float squares = 0.0f, most = 0.0f;
    for (int64_t o = 0; o < kOut; ++o) {
      squares += w[o] * w[o];
      const float difference = std::abs(g[o] - w[o]);
      most = difference <= most ? most : std::isnan(difference) ? INFINITY : difference;
    }
    worst = std::max(worst, most / std::sqrt(squares / static_cast<float>(kOut)));
  }
  return worst;
}

std::string compare(Device& device) {
  struct Pair {
    Tensor x, got, want;
  };
  Numbers numbers;
  const Weight weight = random_weight(device, numbers);
  std::vector<Pair> pairs;
  const auto encoder = device.begin();
  auto& metal = static_cast<MetalEncoder&>(*encoder);
  for (const auto [rows, depth] : kSizes) {
    const int64_t splits = depth > 0 ? (kIn + depth - 1) / depth : 1;
    const Shape shape{splits * rows, kOut};
    // Rows of very different size: the scale of a row is part of what is checked.
    pairs.push_back({random(device, numbers, {rows, kIn}, std::ldexp(1.0f, static_cast<int>(rows) - 20)),
                     device.tensor(DType::f32, shape), device.tensor(DType::f32, shape)});
    const Pair& pair = pairs.back();
    const LinearOut got{pair.got, &weight, {}}, want{pair.want, &weight, {}};
    LinearJob job{pair.x, {&got, 1}};
    job.depth[0] = depth;
    launch_matmul_tensor(metal, job);
    job.outs = {&want, 1};
    launch_matmul(metal, job);
  }
  encoder->submit().wait();
  for (const Pair& pair : pairs) {
    const float worst = worst_difference(pair.got, pair.want);
    if (!(worst <= kTolerance)) return message("at ", pair.x.shape[0], " rows they are off by ", worst);
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
