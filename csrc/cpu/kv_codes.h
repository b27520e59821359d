#pragma once
// Codes of 8 bits in the KV cache (KvLayer in op_types.h), as metal/common/kv.h has them: the same bits.

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/dtype.h"
#include "params/kv.h"

namespace saragossa::cpu {
namespace {

/// Of a group of channels, in bf16.
struct KvScale {
  uint16_t step, zero;
};

constexpr KvScale kKvNan{0x7fc0, 0x7fc0};

/// Step and zero of values in [low, high], rounded outward: codes reach both ends.
inline KvScale kv_scale_of(float low, float high) {
  auto zero = std::bit_cast<uint32_t>(low);
  if ((zero & 0x80000000u) != 0 && (zero & 0xffffu) != 0) zero += 0x10000u;
  zero &= 0xffff0000u;
  const uint32_t step = std::bit_cast<uint32_t>((high - std::bit_cast<float>(zero)) / 255.0f) + 0xffffu;
  return {static_cast<uint16_t>(step < 0x00800000u ? 0 : step >> 16), static_cast<uint16_t>(zero >> 16)};
}

inline float kv_inverse(KvScale scale) {
  const float step = bf16_to_f32(scale.step);
  return step > 0.0f ? 1.0f / step : 0.0f;
}

inline uint8_t kv_code(float x, KvScale scale, float inverse) {
  const float code = std::nearbyint((x - bf16_to_f32(scale.zero)) * inverse);
  return static_cast<uint8_t>(code < 0.0f ? 0.0f : code > 255.0f ? 255.0f : code);
}

}  // namespace
}  // namespace saragossa::cpu
