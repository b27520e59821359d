#pragma once
// The small floats of the OCP microscaling formats, as the reference reads them.

#include <bit>
#include <cstdint>
#include <limits>

namespace saragossa {

/// Twice the value of an E2M1 code (sign, two bits of exponent, one of mantissa): an integer, of code 8 too (-0).
constexpr int twice_e2m1(uint32_t code) {
  constexpr int magnitudes[] = {0, 1, 2, 3, 4, 6, 8, 12};
  return code & 8u ? -magnitudes[code & 7u] : magnitudes[code & 7u];
}

constexpr float e2m1_to_f32(uint32_t code) {
  const float value = static_cast<float>(twice_e2m1(code & 7u)) * 0.5f;
  return code & 8u ? -value : value;
}

/// Bias 7, no infinities; all ones is NaN.
constexpr float e4m3_to_f32(uint32_t code) {
  const uint32_t exponent = (code >> 3) & 15u, mantissa = code & 7u;
  if ((code & 127u) == 127u) return std::numeric_limits<float>::quiet_NaN();
  const float value = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9f
                                    : std::bit_cast<float>(((exponent + 120u) << 23) | (mantissa << 20));
  return code & 128u ? -value : value;
}

/// 2^(code - 127); 255 is NaN.
constexpr float e8m0_to_f32(uint8_t code) {
  if (code == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23);
}

}  // namespace saragossa
