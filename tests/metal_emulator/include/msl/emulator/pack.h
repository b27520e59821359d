// <metal_pack>: normalised integers in one word, the first component in the lowest bits.
#pragma once
namespace metal {

EMULATOR_INLINE float unorm(uint bits, uint width) {
  return static_cast<float>(bits) / static_cast<float>((1u << width) - 1);
}
EMULATOR_INLINE float snorm(int value, uint width) {
  return max(static_cast<float>(value) / static_cast<float>((1u << (width - 1)) - 1), -1.0f);
}
EMULATOR_INLINE uint to_unorm(float x, uint width) {
  return static_cast<uint>(rint(saturate(x) * static_cast<float>((1u << width) - 1)));
}
EMULATOR_INLINE uint to_snorm(float x, uint width) {
  const int value = static_cast<int>(rint(clamp(x, -1.0f, 1.0f) * static_cast<float>((1u << (width - 1)) - 1)));
  return static_cast<uint>(value) & ((1u << width) - 1);
}

// N components of W bits: unpack_unorm4x8_to_float and its relatives.
#define EMULATOR_PACK(N, W, word)                                                                      \
  EMULATOR_INLINE vec<float, N> unpack_unorm##N##x##W##_to_float(word p) {                             \
    vec<float, N> r;                                                                                   \
    for (uint i = 0; i < N; i++) r[i] = unorm(p >> (i * W) & ((1u << W) - 1), W);                      \
    return r;                                                                                          \
  }                                                                                                    \
  EMULATOR_INLINE vec<float, N> unpack_snorm##N##x##W##_to_float(word p) {                             \
    vec<float, N> r;                                                                                   \
    for (uint i = 0; i < N; i++) r[i] = snorm(static_cast<int>(p << (32 - W - i * W)) >> (32 - W), W); \
    return r;                                                                                          \
  }                                                                                                    \
  EMULATOR_INLINE vec<half, N> unpack_unorm##N##x##W##_to_half(word p) {                               \
    return vec<half, N>(unpack_unorm##N##x##W##_to_float(p));                                          \
  }                                                                                                    \
  EMULATOR_INLINE vec<half, N> unpack_snorm##N##x##W##_to_half(word p) {                               \
    return vec<half, N>(unpack_snorm##N##x##W##_to_float(p));                                          \
  }                                                                                                    \
  EMULATOR_INLINE word pack_float_to_unorm##N##x##W(vec<float, N> x) {                                 \
    word p = 0;                                                                                        \
    for (uint i = 0; i < N; i++) p |= static_cast<word>(to_unorm(x[i], W) << (i * W));                 \
    return p;                                                                                          \
  }                                                                                                    \
  EMULATOR_INLINE word pack_float_to_snorm##N##x##W(vec<float, N> x) {                                 \
    word p = 0;                                                                                        \
    for (uint i = 0; i < N; i++) p |= static_cast<word>(to_snorm(x[i], W) << (i * W));                 \
    return p;                                                                                          \
  }
EMULATOR_PACK(4, 8, uint)
EMULATOR_PACK(2, 16, uint)
}  // namespace metal
