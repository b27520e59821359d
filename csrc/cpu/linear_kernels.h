#pragma once
// What an instruction set gives to LinearEngine: one table of functions.
//
// Two families:
//   dot_f32  float32 activations, weights as stored (dense, or affine dequantised in registers)
//   *_int    affine and mxfp4 weights, activations quantised per group and packed in the kernel's own order
//
// Quantised activations, per row and group of the weight (all instruction sets agree bit for bit):
//   a = max |x|; scale = a / L; q = rint(x * (L / a)), L = 16256 (int15) or 127 (int8)
//   dot(w, x) = sum over groups of (w_scale * scale) * sum(code * q) + w_bias * (scale * sum(q))
// The sum of q, not of x, carries the bias: then the error is that of x alone, times w, not times the code.
// int15 as two int8 parts: q = hi * 128 + lo, hi = (q + 64) >> 7 in [-127, 127], lo in [-64, 63].
// A group with an infinity or a NaN has scale NaN and q = 0; one below 1e-30 counts as zeros.
//
// mxfp4 is affine in integers: twice an E2M1 value is one of -12 to 12, its w_scale is 2^(stored - 128). Where codes
// must not be negative they are greater by 12, and w_bias is -12 * w_scale.

#include "cpu/linear.h"

namespace saragossa::cpu {

constexpr int64_t kMatvecRows = 8;    // rows that the matvec form takes at once
constexpr int64_t kMatmulRows = 512;  // rows that the matmul form takes at once
constexpr float kSmallestMax = 1e-30f;

/// How a code is read, a template argument of the kernels: affine ones by their bits, the others by these.
constexpr int kE2M1 = 16 + 4;  // mxfp4
constexpr int kE4M3 = 16 + 8;  // mxfp8
consteval int width_of(int code) { return code % 16; }
inline int code_of(const Matrix& w) { return w.bits != 0 && w.dtype == DType::u8 ? 16 + w.bits : w.bits; }

constexpr float quant_limit(Activations a) { return a == Activations::int15 ? 16256.0f : 127.0f; }

/// What the packed form of an input depends on.
struct PackFormat {
  Activations activations = Activations::int15;
  int bits = 0;
  int group = 0;
  int64_t in = 0;
  bool matmul = false;
  bool operator==(const PackFormat&) const = default;
  int64_t groups() const { return in / group; }
};

/// A row of a matrix in memory; dense ones have no scales.
struct WeightsAt {
  const uint8_t* data = nullptr;
  const uint8_t* scales = nullptr;
  const uint8_t* biases = nullptr;
};

/// What a core will read: hints for prefetching.
struct Upcoming {
  bool asked = false;  // with the core's tile before this one, which asked for what comes behind it
  int64_t end = 0;     // the outputs that the core has of this matrix end here
  WeightsAt after;     // what it reads then; null: not known
};

/// Outputs [begin, end) of a matrix; y[r * stride + (o - begin)] receives row r, output o.
struct OutTile {
  int64_t begin = 0, end = 0;
  float* y = nullptr;
  int64_t stride = 0;
  Upcoming upcoming = {};
};

struct LinearKernels {
  /// rows 1..kMatvecRows of x [rows, w.in].
  void (*dot_f32)(const Matrix& w, const float* x, int64_t rows, const OutTile& out);

  /// Bytes of `rows` packed rows. The matvec form packs each row alone, one after the other.
  int64_t (*packed_bytes)(const PackFormat& format, int64_t rows);
  /// Packs rows [begin, end) of `rows`; of the matmul form begin is a multiple of pack_rows.
  void (*pack)(const PackFormat& format, const float* x, int64_t rows, int64_t begin, int64_t end, uint8_t* packed);
  int64_t pack_rows;

  /// Matvec form, 1..kMatvecRows rows.
  void (*matvec_int)(const Matrix& w, const PackFormat& format, const uint8_t* packed, int64_t rows,
                     const OutTile& out);
  /// Matmul form, any number of rows; scratch of matmul_scratch(format) bytes, aligned to 64.
  void (*matmul_int)(const Matrix& w, const PackFormat& format, const uint8_t* packed, int64_t rows, const OutTile& out,
                     uint8_t* scratch);
  int64_t (*matmul_scratch)(const PackFormat& format);
  int64_t matmul_outs;  // outputs per task are a multiple of this
};

const LinearKernels& linear_kernels(Isa isa);

namespace scalar {
const LinearKernels& linear_kernels();
}
#if defined(__x86_64__)
namespace avx2 {
const LinearKernels& linear_kernels();
}
namespace avx512 {
const LinearKernels& linear_kernels();
}
#elif defined(__aarch64__)
namespace neon {
const LinearKernels& linear_kernels();
}
#endif

}  // namespace saragossa::cpu
