// Reference of the linears: plain loops, sums in double, so that every other instruction set is measured
// against something that has no rounding of its own worth naming.
//
// Packed row: scale f32 [groups], sum of q times scale f32 [groups], q i16 [in].

#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/linear_codes.h"
#include "cpu/linear_kernels.h"

namespace saragossa::cpu::scalar {
namespace {

struct PackedRow {
  const float* scale;
  const float* sum;
  const int16_t* q;
};

int64_t row_bytes(const PackFormat& f) { return f.groups() * 8 + f.in * 2; }

PackedRow packed_row(const PackFormat& f, const uint8_t* packed, int64_t r) {
  const auto* scale = reinterpret_cast<const float*>(packed + r * row_bytes(f));
  return {scale, scale + f.groups(), reinterpret_cast<const int16_t*>(scale + 2 * f.groups())};
}

int64_t packed_bytes(const PackFormat& f, int64_t rows) { return rows * row_bytes(f); }

void pack(const PackFormat& f, const float* x, int64_t, int64_t begin, int64_t end, uint8_t* packed) {
  const float limit = quant_limit(f.activations);
  for (int64_t r = begin; r < end; ++r) {
    const PackedRow row = packed_row(f, packed, r);
    for (int64_t g = 0; g < f.groups(); ++g) {
      const float* from = x + r * f.in + g * f.group;
      auto* to = const_cast<int16_t*>(row.q) + g * f.group;
      float most = 0.0f;
      bool finite = true;
      for (int i = 0; i < f.group; ++i) {
        finite = finite && std::isfinite(from[i]);
        most = std::max(most, std::abs(from[i]));
      }
      const bool zero = !finite || most < kSmallestMax;
      const float inverse = zero ? 0.0f : limit / most;
      int32_t sum = 0;
      for (int i = 0; i < f.group; ++i) {
        to[i] = zero ? int16_t{0} : static_cast<int16_t>(std::lrint(from[i] * inverse));
        sum += to[i];
      }
      const float scale = !finite ? NAN : zero ? 0.0f : most / limit;
      const_cast<float*>(row.scale)[g] = scale;
      const_cast<float*>(row.sum)[g] = scale * static_cast<float>(sum);
    }
  }
}

void matvec_int(const Matrix& w, const PackFormat& f, const uint8_t* packed, int64_t rows, const OutTile& out) {
  std::vector<int32_t> code(static_cast<size_t>(w.in));
  const bool e2m1 = code_of(w) == kE2M1;
  const double unit = e2m1 ? 0.5 : 1.0;
  for (int64_t o = out.begin; o < out.end; ++o) {
    for (int64_t k = 0; k < w.in; ++k) {
      const uint32_t bits = code_at(codes_of(w, o), w.bits, k);
      code[static_cast<size_t>(k)] = e2m1 ? twice_e2m1(bits) : static_cast<int32_t>(bits);
    }
    for (int64_t r = 0; r < rows; ++r) {
      const PackedRow x = packed_row(f, packed, r);
      double sum = 0.0;
      for (int64_t g = 0; g < f.groups(); ++g) {
        int32_t dot = 0;
        for (int64_t k = g * w.group; k < (g + 1) * w.group; ++k) dot += code[static_cast<size_t>(k)] * x.q[k];
        sum += unit * static_cast<double>(scale_at(w, o, g)) * x.scale[g] * dot;
        sum += static_cast<double>(bias_at(w, o, g)) * x.sum[g];
      }
      out.y[r * out.stride + o - out.begin] = static_cast<float>(sum);
    }
  }
}

void matmul_int(const Matrix& w, const PackFormat& f, const uint8_t* packed, int64_t rows, const OutTile& out,
                uint8_t*) {
  matvec_int(w, f, packed, rows, out);
}

int64_t matmul_scratch(const PackFormat&) { return 0; }

void dot_f32(const Matrix& w, const float* x, int64_t rows, const OutTile& out) {
  std::vector<float> row(static_cast<size_t>(w.in));
  for (int64_t o = out.begin; o < out.end; ++o) {
    for (int64_t k = 0; k < w.in; ++k) row[static_cast<size_t>(k)] = weight_at(w, o, k);
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0.0;
      for (int64_t k = 0; k < w.in; ++k)
        sum += static_cast<double>(row[static_cast<size_t>(k)]) * static_cast<double>(x[r * w.in + k]);
      out.y[r * out.stride + o - out.begin] = static_cast<float>(sum);
    }
  }
}

}  // namespace

const LinearKernels& linear_kernels() {
  static constexpr LinearKernels kernels{dot_f32, packed_bytes, pack, 1, matvec_int, matmul_int, matmul_scratch, 1};
  return kernels;
}

}  // namespace saragossa::cpu::scalar
