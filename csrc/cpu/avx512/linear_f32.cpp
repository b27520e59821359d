// Dense and mxfp8 linears with float32 activations: y[r, o] = sum over k of w[o, k] * x[r, k], w as stored.
//
// Sixteen lanes hold the sums of k mod 16, fma'd in ascending order of k, so a result depends on neither the number
// of rows nor the chunk. mxfp8 is the same, group by group; the other quantised weights, which come here in the exact
// mode alone, take the AVX2 form.
//
// Ownership: one thread has outputs [begin, end).

#include <algorithm>
#include <cmath>

#include "cpu/avx512/linear_avx512.h"
#include "cpu/avx512/linear_simd.h"

namespace saragossa::cpu::avx512 {
namespace {

constexpr int64_t kBlockOuts = 4;  // share the loads of x; their weights stay in the first cache while the rows pass

template <DType dtype, int outs, int rows>
inline void dot_block(const Matrix& w, const float* x, int64_t o, const OutTile& out, int64_t r0) {
  __m512 sum[outs][rows];
  for (int i = 0; i < outs; ++i)
    for (int r = 0; r < rows; ++r) sum[i][r] = _mm512_setzero_ps();
  const int64_t row_bytes = w.in * size_of(dtype);
  const uint8_t* data = w.data + o * row_bytes;
  const auto* input = reinterpret_cast<const uint8_t*>(x + r0 * w.in);
  const auto add = [&](int64_t k, __mmask16 mask) {
    __m512 v[outs];
    for (int i = 0; i < outs; ++i) v[i] = load_floats<dtype>(data + i * row_bytes, k, mask);
    for (int r = 0; r < rows; ++r) {
      const __m512 u = load_floats<DType::f32>(input + r * w.in * 4, k, mask);
      for (int i = 0; i < outs; ++i) sum[i][r] = _mm512_fmadd_ps(v[i], u, sum[i][r]);
    }
  };
  int64_t k = 0;
  for (; k + 16 <= w.in; k += 16) add(k, 0xffff);
  if (k < w.in) add(k, lanes(w.in - k));
  for (int i = 0; i < outs; ++i)
    for (int r = 0; r < rows; ++r) out.y[(r0 + r) * out.stride + o + i - out.begin] = sum_of(sum[i][r]);
}

template <DType dtype, int rows>
void dot_rows(const Matrix& w, const float* x, int64_t o, int64_t n, const OutTile& out, int64_t r0) {
  if (n == kBlockOuts) return dot_block<dtype, kBlockOuts, rows>(w, x, o, out, r0);
  for (int64_t i = 0; i < n; ++i) dot_block<dtype, 1, rows>(w, x, o + i, out, r0);
}

template <DType dtype>
void dot_typed(const Matrix& w, const float* x, int64_t rows, const OutTile& out) {
  for (int64_t o = out.begin; o < out.end; o += kBlockOuts) {
    const int64_t n = std::min(kBlockOuts, out.end - o);
    for (int64_t r = 0; r < rows; r += 4) {
      switch (std::min<int64_t>(rows - r, 4)) {
        case 1: dot_rows<dtype, 1>(w, x, o, n, out, r); break;
        case 2: dot_rows<dtype, 2>(w, x, o, n, out, r); break;
        case 3: dot_rows<dtype, 3>(w, x, o, n, out, r); break;
        default: dot_rows<dtype, 4>(w, x, o, n, out, r); break;
      }
    }
  }
}

/// mxfp8: as half a code has the right exponent less 8, subnormal ones too. A NaN makes its output NaN.
template <int outs, int rows>
inline void dot_e4m3(const Matrix& w, const float* x, int64_t o, const OutTile& out, int64_t r0) {
  constexpr int64_t kGroup = 32;
  const int64_t groups = w.in / kGroup;
  const uint8_t* data = w.data + o * w.in;
  const uint8_t* scales = w.scales + o * groups;
  __m512 sum[outs][rows];
  __mmask32 nan[outs] = {};
#pragma GCC unroll 4
  for (int i = 0; i < outs; ++i) {
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) sum[i][r] = _mm512_setzero_ps();
  }
  for (int64_t g = 0; g < groups; ++g) {
    const float* from = x + r0 * w.in + g * kGroup;
#pragma GCC unroll 4
    for (int i = 0; i < outs; ++i) {
      const uint8_t* p = data + i * w.in + g * kGroup;
      __builtin_prefetch(p + outs * w.in, 0, 2);  // what the next block reads
      const __m512i code = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
      const __m512i all = _mm512_set1_epi16(0x7f);
      const uint32_t scale = scales[i * groups + g];
      nan[i] |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(code, all), all) | (scale == 255 ? 1u : 0u);
      const __m512i half = _mm512_and_si512(_mm512_srai_epi16(_mm512_slli_epi16(code, 8), 1),
                                            _mm512_set1_epi16(static_cast<short>(0xbfff)));
      const __m512 v0 = _mm512_cvtph_ps(_mm512_castsi512_si256(half));
      const __m512 v1 = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1));
      const uint32_t power = scale == 0 ? 0x00400000u : scale << 23;
      const __m512 factor = _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(power)));
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) {
        const __m512 dot = _mm512_mul_ps(v0, _mm512_loadu_ps(from + r * w.in));
        sum[i][r] = _mm512_fmadd_ps(_mm512_fmadd_ps(v1, _mm512_loadu_ps(from + r * w.in + 16), dot), factor, sum[i][r]);
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < outs; ++i) {
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r)
      out.y[(r0 + r) * out.stride + o + i - out.begin] = nan[i] != 0 ? NAN : 256.0f * sum_of(sum[i][r]);
  }
}

template <int rows>
void dot_e4m3_rows(const Matrix& w, const float* x, int64_t o, int64_t n, const OutTile& out, int64_t r0) {
  if (n == kBlockOuts) return dot_e4m3<kBlockOuts, rows>(w, x, o, out, r0);
  for (int64_t i = 0; i < n; ++i) dot_e4m3<1, rows>(w, x, o + i, out, r0);
}

void dot_e4m3(const Matrix& w, const float* x, int64_t rows, const OutTile& out) {
  for (int64_t o = out.begin; o < out.end; o += kBlockOuts) {
    const int64_t n = std::min(kBlockOuts, out.end - o);
    for (int64_t r = 0; r < rows; r += 4) {
      switch (std::min<int64_t>(rows - r, 4)) {
        case 1: dot_e4m3_rows<1>(w, x, o, n, out, r); break;
        case 2: dot_e4m3_rows<2>(w, x, o, n, out, r); break;
        case 3: dot_e4m3_rows<3>(w, x, o, n, out, r); break;
        default: dot_e4m3_rows<4>(w, x, o, n, out, r); break;
      }
    }
  }
}

}  // namespace

void dot_f32(const Matrix& w, const float* x, int64_t rows, const OutTile& out) {
  if (code_of(w) == kE4M3) return dot_e4m3(w, x, rows, out);
  if (w.bits != 0) return avx2::linear_kernels().dot_f32(w, x, rows, out);
  switch (w.dtype) {
    case DType::bf16: return dot_typed<DType::bf16>(w, x, rows, out);
    case DType::f16: return dot_typed<DType::f16>(w, x, rows, out);
    default: return dot_typed<DType::f32>(w, x, rows, out);
  }
}

}  // namespace saragossa::cpu::avx512
