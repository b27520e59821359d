#pragma once
// Weights in the order in which a thread reads them: each format loads a chunk of a row and gives its values as float.
//
// Affine, MLX layout: a row is an LSB-first stream of BITS-wide codes in little-endian words; w = code * scale + bias,
// one scale and one bias per group of 32, 64 or 128 values. mxfp4, mxfp8: codes are small floats, E2M1 and E4M3; w =
// value * 2^(byte - 127), one byte per group of 32. Dense: f32, f16, bf16. Rows begin at multiples of 8 bytes, those of
// 3 and 5 bits at multiples of 4.
//
// A format has `chunk` (values that a thread takes at once, 8 or 16), `words` (32-bit words of a chunk), `scaled`,
// `biased`, load(row, k, in, words): the chunk at value k of a row, and value(words, i): its code or value i.

#include "params/types.h"

/// Element i of stored floats of the given dtype.
inline float sg_stored(device const uchar* p, uint i, uint dtype) {
  if (dtype == SG_E8M0) return as_type<float>(p[i] == 0 ? 0x00400000u : p[i] == 255 ? 0x7fc00000u : uint(p[i]) << 23);
  if (dtype == SG_BF16) return as_type<float>(uint(((device const ushort*)p)[i]) << 16);
  if (dtype == SG_F16) return float(((device const half*)p)[i]);
  return ((device const float*)p)[i];
}

inline uint sg_stored_bytes(uint dtype) { return dtype == SG_F32 ? 4 : dtype == SG_E8M0 ? 1 : 2; }

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

struct Affine2 {
  enum : uint { scaled = 1, biased = 1, chunk = 16, words = 1 };
  static void load(device const uint* row, uint k, uint, thread uint* w) { w[0] = row[k / 16]; }
  static float value(const thread uint* w, uint i) { return sg_code<2>(w, i); }
};

struct Affine3 {
  enum : uint { scaled = 1, biased = 1, chunk = 16, words = 2 };
  static void load(device const uint* row, uint k, uint, thread uint* w) {
    device const ushort* from = (device const ushort*)row + k / 16 * 3;
    w[0] = from[0] | uint(from[1]) << 16;
    w[1] = from[2];
  }
  static float value(const thread uint* w, uint i) { return sg_code<3>(w, i); }
};

struct Affine4 {
  enum : uint { scaled = 1, biased = 1, chunk = 16, words = 2 };
  static void load(device const uint* row, uint k, uint, thread uint* w) {
    const uint2 a = ((device const uint2*)row)[k / 16];
    w[0] = a.x;
    w[1] = a.y;
  }
  static float value(const thread uint* w, uint i) { return sg_code<4>(w, i); }
};

struct Affine5 {
  enum : uint { scaled = 1, biased = 1, chunk = 16, words = 3 };
  static void load(device const uint* row, uint k, uint, thread uint* w) {
    device const ushort* from = (device const ushort*)row + k / 16 * 5;
    w[0] = from[0] | uint(from[1]) << 16;
    w[1] = from[2] | uint(from[3]) << 16;
    w[2] = from[4];
  }
  static float value(const thread uint* w, uint i) { return sg_code<5>(w, i); }
};

struct Affine6 {
  enum : uint { scaled = 1, biased = 1, chunk = 16, words = 3 };
  static void load(device const uint* row, uint k, uint, thread uint* w) {
    device const uint* from = row + k / 16 * 3;
    w[0] = from[0];
    w[1] = from[1];
    w[2] = from[2];
  }
  static float value(const thread uint* w, uint i) { return sg_code<6>(w, i); }
};

struct Affine8 {
  enum : uint { scaled = 1, biased = 1, chunk = 8, words = 2 };
  static void load(device const uint* row, uint k, uint, thread uint* w) {
    const uint2 a = ((device const uint2*)row)[k / 8];
    w[0] = a.x;
    w[1] = a.y;
  }
  static float value(const thread uint* w, uint i) { return sg_code<8>(w, i); }
};

/// mxfp4: sign, two bits of exponent (bias 1), one of mantissa. No subnormal float is met on the way.
struct Mxfp4 {
  enum : uint { scaled = 1, biased = 0, chunk = 16, words = 2 };
  static void load(device const uint* row, uint k, uint in, thread uint* w) { Affine4::load(row, k, in, w); }
  static float value(const thread uint* w, uint i) {
    const uint code = w[i / 8] >> i % 8 * 4, size = code & 7;
    const uint bits = size > 1 ? 0x3f000000u + (size << 22) : size == 1 ? 0x3f000000u : 0;
    return as_type<float>(bits | (code & 8) << 28);
  }
};

/// mxfp8: sign, four bits of exponent (bias 7), three of mantissa; no infinities, all ones is NaN.
struct Mxfp8 {
  enum : uint { scaled = 1, biased = 0, chunk = 8, words = 2 };
  static void load(device const uint* row, uint k, uint in, thread uint* w) { Affine8::load(row, k, in, w); }
  static float value(const thread uint* w, uint i) {
    const uint code = w[i / 4] >> i % 4 * 8, size = code & 127;
    const float normal = as_type<float>((size << 20) + (120u << 23));
    const float subnormal = as_type<float>((size << 20) + (121u << 23)) - 0.015625f;  // 2^-6 (1 + m / 8) - 2^-6
    const uint bits = size == 127 ? 0x7fc00000u : as_type<uint>(size < 8 ? subnormal : normal);
    return as_type<float>(bits | (code & 128) << 24);
  }
};

struct DenseF32 {
  enum : uint { scaled = 0, biased = 0, chunk = 8, words = 8 };
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
  enum : uint { scaled = 0, biased = 0, chunk = 8, words = 4 };
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
