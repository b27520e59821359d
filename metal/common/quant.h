#pragma once
// Weights in the order in which a thread reads them: each format loads a chunk of a row and gives its values as float.
//
// Affine, MLX layout: a row is an LSB-first stream of BITS-wide codes in little-endian words; w = code * scale + bias,
// one scale and one bias per group of 32, 64 or 128 values. Dense: f32, f16, bf16. Rows begin at multiples of 8 bytes.
//
// A format has `chunk` (values that a thread takes at once, 8 or 16), `words` (32-bit words of a chunk), `affine`,
// load(row, k, in, words): the chunk at value k of a row, and value(words, i): its code or value i.

#include "params/types.h"

/// Element i of stored floats of the given dtype.
inline float sg_stored(device const uchar* p, uint i, uint dtype) {
  if (dtype == SG_BF16) return as_type<float>(uint(((device const ushort*)p)[i]) << 16);
  if (dtype == SG_F16) return float(((device const half*)p)[i]);
  return ((device const float*)p)[i];
}

/// Bits [shift, shift + BITS) of w, at most 23 in all, as a float. They go into the mantissa of 2^23; one fma takes
/// that away and shifts. Bit operations and fma run at full rate, integer shifts and conversions at a quarter of it
/// (public microbenchmarks of M1; not measured here).
template <uint BITS>
inline float sg_field(uint w, uint shift) {
  const uint mask = ((1u << BITS) - 1) << shift;
  const float unit = as_type<float>((127u - shift) << 23);  // 2^-shift
  return metal::fma(as_type<float>(0x4b000000u | (w & mask)), unit, -8388608.0f * unit);
}

/// Code i of the stream in `words`. i is known when the loop around is unrolled: no shift by a variable stays.
template <uint BITS>
inline float sg_code(const thread uint* words, uint i) {
  const uint word = i * BITS / 32, shift = i * BITS % 32;
  if (shift + BITS <= 23) return sg_field<BITS>(words[word], shift);
  if (shift + BITS <= 32) return sg_field<BITS>(words[word] >> 16, shift - 16);
  return sg_field<BITS>(words[word] >> shift | words[word + 1] << (32 - shift), 0);
}

struct Affine4 {
  enum : uint { affine = 1, chunk = 16, words = 2 };
  static void load(device const uint* row, uint k, uint, thread uint* w) {
    const uint2 a = ((device const uint2*)row)[k / 16];
    w[0] = a.x;
    w[1] = a.y;
  }
  static float value(const thread uint* w, uint i) { return sg_code<4>(w, i); }
};

struct Affine6 {
  enum : uint { affine = 1, chunk = 16, words = 3 };
  static void load(device const uint* row, uint k, uint, thread uint* w) {
    device const uint* from = row + k / 16 * 3;
    w[0] = from[0];
    w[1] = from[1];
    w[2] = from[2];
  }
  static float value(const thread uint* w, uint i) { return sg_code<6>(w, i); }
};

struct Affine8 {
  enum : uint { affine = 1, chunk = 8, words = 2 };
  static void load(device const uint* row, uint k, uint, thread uint* w) {
    const uint2 a = ((device const uint2*)row)[k / 8];
    w[0] = a.x;
    w[1] = a.y;
  }
  static float value(const thread uint* w, uint i) { return sg_code<8>(w, i); }
};

struct DenseF32 {
  enum : uint { affine = 0, chunk = 8, words = 8 };
  static void load(device const uint* row, uint k, uint, thread uint* w) {
    device const uint2* from = (device const uint2*)row + k / 2;
    for (uint i = 0; i < 4; ++i) {
      const uint2 a = from[i];
      w[2 * i] = a.x;
      w[2 * i + 1] = a.y;
    }
  }
  static float value(const thread uint* w, uint i) { return as_type<float>(w[i]); }
};

/// Two values a word.
struct Dense16 {
  enum : uint { affine = 0, chunk = 8, words = 4 };
  static void load(device const uint* row, uint k, uint, thread uint* w) {
    device const uint2* from = (device const uint2*)row + k / 4;
    const uint2 a = from[0], b = from[1];
    w[0] = a.x;
    w[1] = a.y;
    w[2] = b.x;
    w[3] = b.y;
  }
};
struct DenseF16 : Dense16 {
  static float value(const thread uint* w, uint i) { return float(as_type<half2>(w[i / 2])[i % 2]); }
};
struct DenseBf16 : Dense16 {
  static float value(const thread uint* w, uint i) {
    return as_type<float>(i % 2 == 0 ? w[i / 2] << 16 : w[i / 2] & 0xffff0000u);
  }
};
