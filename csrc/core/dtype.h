#pragma once
// Element types of tensors, and the conversions of the 16-bit floats.

#include <bit>
#include <cstdint>
#include <cstring>

namespace saragossa {

enum class DType : uint8_t { f32, f16, bf16, i32, u32, u8 };

constexpr int64_t size_of(DType t) {
  switch (t) {
    case DType::f32:
    case DType::i32:
    case DType::u32: return 4;
    case DType::f16:
    case DType::bf16: return 2;
    case DType::u8: return 1;
  }
  return 0;
}

constexpr const char* name_of(DType t) {
  switch (t) {
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::i32: return "i32";
    case DType::u32: return "u32";
    case DType::u8: return "u8";
  }
  return "?";
}

constexpr bool is_float(DType t) { return t == DType::f32 || t == DType::f16 || t == DType::bf16; }

inline float bf16_to_f32(uint16_t h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }

/// Round to nearest even; a NaN stays a NaN.
inline uint16_t f32_to_bf16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 31u;
  const uint32_t mantissa = h & 0x3ffu;
  if (exponent == 31u) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0u) return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  // Subnormal: mantissa * 2^-24, exact in float.
  const float value = static_cast<float>(mantissa) * 0x1p-24f;
  return sign ? -value : value;
}

/// One element of a float tensor at `index`, as float.
inline float load_float(const void* data, DType t, int64_t index) {
  // Copied, not dereferenced: a tensor of a mapped file may start at any byte.
  const auto* at = static_cast<const unsigned char*>(data) + index * size_of(t);
  float f = 0.0f;
  uint16_t half = 0;
  switch (t) {
    case DType::f32: std::memcpy(&f, at, sizeof f); return f;
    case DType::f16: std::memcpy(&half, at, sizeof half); return f16_to_f32(half);
    case DType::bf16: std::memcpy(&half, at, sizeof half); return bf16_to_f32(half);
    default: return 0.0f;
  }
}

}  // namespace saragossa
