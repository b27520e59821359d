// Linears with float32 activations: y[r, o] = sum over k of w[o, k] * x[r, k], w as stored.
//
// Dense weights are converted to float in registers; affine ones are code * scale + bias, rounded once (the
// reference's value), those of mxfp4 and mxfp8 exact. Eight lanes hold the sums of k mod 8, fma'd in ascending order of
// k, so a result depends on neither the number of rows nor the chunk. The form for any number of rows: exact mode
// continues a sequence with the bits of a fresh prefill.
//
// Ownership: one thread has outputs [begin, end).

#include <cstring>

#include "cpu/avx2/linear_avx2.h"
#include "cpu/avx2/simd_linear.h"

namespace saragossa::cpu::avx2 {
namespace {

constexpr int64_t kSpan = 32;  // values decoded at once

/// load_one without f16_to_f32, which the compiler might put here as a function of its own for the whole program.
template <DType dtype>
inline float load_alone(const uint8_t* row, int64_t i) {
  if constexpr (dtype == DType::f16) {
    uint16_t half;
    std::memcpy(&half, row + 2 * i, sizeof half);
    return _cvtsh_ss(half);
  } else {
    return load_one<dtype>(row, i);
  }
}

/// Codes in bytes as floats.
inline void floats32(__m128i first, __m128i second, __m256 v[4]) {
  v[0] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(first));
  v[1] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(first, 8)));
  v[2] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(second));
  v[3] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(second, 8)));
}

/// Codes of 32 consecutive values as floats; of E2M1 and E4M3 their values.
template <int bits>
inline void codes32(const uint8_t* p, __m256 v[4]) {
  if constexpr (bits == 4) {
    const __m128i nibble = _mm_set1_epi8(15);
    const __m128i bytes = load_half(p);
    const __m128i even = _mm_and_si128(bytes, nibble);
    const __m128i odd = _mm_and_si128(_mm_srli_epi16(bytes, 4), nibble);
    floats32(_mm_unpacklo_epi8(even, odd), _mm_unpackhi_epi8(even, odd), v);
  } else if constexpr (bits == kE2M1) {
    // Top bytes of the values as half; the other bytes are 0.
    const __m128i tops = _mm_setr_epi8(0, 0x38, 0x3c, 0x3e, 0x40, 0x42, 0x44, 0x46, -0x80, -0x48, -0x44, -0x42, -0x40,
                                       -0x3e, -0x3c, -0x3a);
    const __m128i nibble = _mm_set1_epi8(15);
    const __m128i bytes = load_half(p);
    const __m128i even = _mm_shuffle_epi8(tops, _mm_and_si128(bytes, nibble));
    const __m128i odd = _mm_shuffle_epi8(tops, _mm_and_si128(_mm_srli_epi16(bytes, 4), nibble));
    const __m128i first = _mm_unpacklo_epi8(even, odd), second = _mm_unpackhi_epi8(even, odd);
    const __m128i zero = _mm_setzero_si128();
    v[0] = _mm256_cvtph_ps(_mm_unpacklo_epi8(zero, first));
    v[1] = _mm256_cvtph_ps(_mm_unpackhi_epi8(zero, first));
    v[2] = _mm256_cvtph_ps(_mm_unpacklo_epi8(zero, second));
    v[3] = _mm256_cvtph_ps(_mm_unpackhi_epi8(zero, second));
  } else if constexpr (bits == kE4M3) {
    for (int i = 0; i < 4; ++i)
      v[i] = e4m3_floats(_mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * i))));
  } else if constexpr (bits == 2 || bits == 3 || bits == 5) {
    // The second 16 values end with the bytes: loaded from the last 16 of them on, or (2, 3 bits) from fewer.
    alignas(16) uint8_t few[16] = {};
    if constexpr (bits < 5) std::memcpy(few, p, 4 * bits);
    const __m256i codes = bits == 5   ? spread<5, 0, 6>(load_halves(p, p + 4))
                          : bits == 3 ? spread<3, 0, 6>(load_halves(few, few))
                                      : spread<2, 0, 4>(load_halves(few, few));
    floats32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1), v);
  } else if constexpr (bits == 6) {
    // 24 bytes: 12 from p in the low lane, 12 from p + 12 (loaded from p + 8) in the high one; 3 bytes give 4 codes.
    const __m256i order = _mm256_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1, 4, 5, 6, -1, 7, 8, 9,
                                           -1, 10, 11, 12, -1, 13, 14, 15, -1);
    const __m256i words = _mm256_shuffle_epi8(load_halves(p, p + 8), order);
    const __m256i shifts = _mm256_setr_epi32(0, 6, 12, 18, 0, 6, 12, 18);
    const __m256i mask = _mm256_set1_epi32(63);
    for (int i = 0; i < 4; ++i) {
      const __m256i pick = _mm256_setr_epi32(2 * i, 2 * i, 2 * i, 2 * i, 2 * i + 1, 2 * i + 1, 2 * i + 1, 2 * i + 1);
      const __m256i word = _mm256_permutevar8x32_epi32(words, pick);
      v[i] = _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srlv_epi32(word, shifts), mask));
    }
  } else {
    for (int i = 0; i < 4; ++i)
      v[i] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * i))));
  }
}

/// Values [k, k + 32) of one output; bits 0: dense.
template <int bits, DType dtype>
inline void weights32(const Matrix& w, int64_t o, int64_t k, __m256 v[4]) {
  if constexpr (bits == 0) {
    const uint8_t* row = w.data + o * w.in * size_of(dtype);
    for (int i = 0; i < 4; ++i) v[i] = load_floats<dtype>(row, k + 8 * i);
  } else {
    codes32<bits>(w.data + (o * w.in + k) * width_of(bits) / 8, v);
    const int64_t g = (o * w.in + k) / w.group;
    const __m256 scale = _mm256_set1_ps(load_alone<dtype>(w.scales, g));
    if constexpr (dtype == DType::u8) {
      for (int i = 0; i < 4; ++i) v[i] = _mm256_mul_ps(v[i], scale);
      return;
    }
    const __m256 bias = _mm256_set1_ps(load_alone<dtype>(w.biases, g));
    for (int i = 0; i < 4; ++i) v[i] = _mm256_fmadd_ps(v[i], scale, bias);
  }
}

template <int bits, DType dtype, int outs, int rows>
inline void dot_block(const Matrix& w, const float* x, int64_t o, const OutTile& out, int64_t r0) {
  __m256 sum[outs][rows];
  for (int i = 0; i < outs; ++i)
    for (int r = 0; r < rows; ++r) sum[i][r] = _mm256_setzero_ps();
  int64_t k = 0;
  for (; k + kSpan <= w.in; k += kSpan) {
    for (int i = 0; i < outs; ++i) {
      __m256 v[4];
      weights32<bits, dtype>(w, o + i, k, v);
      for (int r = 0; r < rows; ++r)
        for (int j = 0; j < 4; ++j)
          sum[i][r] = _mm256_fmadd_ps(v[j], _mm256_loadu_ps(x + (r0 + r) * w.in + k + 8 * j), sum[i][r]);
    }
  }
  for (int i = 0; i < outs; ++i) {
    for (int r = 0; r < rows; ++r) {
      float total = sum_of(sum[i][r]);
      // Dense inputs need be no multiple of 32.
      for (int64_t t = k; t < w.in; ++t)
        total += load_alone<dtype>(w.data, (o + i) * w.in + t) * x[(r0 + r) * w.in + t];
      out.y[(r0 + r) * out.stride + o + i - out.begin] = total;
    }
  }
}

template <int bits, DType dtype, int rows>
void dot_rows(const Matrix& w, const float* x, int64_t o, int64_t n, const OutTile& out, int64_t r0) {
  constexpr int outs = rows <= 2 ? 4 : 2;  // 4 to 8 sums at once hide the latency of the fma
  int64_t i = 0;
  for (; i + outs <= n; i += outs) dot_block<bits, dtype, outs, rows>(w, x, o + i, out, r0);
  for (; i < n; ++i) dot_block<bits, dtype, 1, rows>(w, x, o + i, out, r0);
}

template <int bits, DType dtype>
void dot_typed(const Matrix& w, const float* x, int64_t rows, const OutTile& out) {
  constexpr int64_t kBlock = 4;
  for (int64_t o = out.begin; o < out.end; o += kBlock) {
    const int64_t n = std::min(kBlock, out.end - o);
    for (int64_t r = 0; r < rows; r += 4) {
      switch (std::min<int64_t>(rows - r, 4)) {
        case 1: dot_rows<bits, dtype, 1>(w, x, o, n, out, r); break;
        case 2: dot_rows<bits, dtype, 2>(w, x, o, n, out, r); break;
        case 3: dot_rows<bits, dtype, 3>(w, x, o, n, out, r); break;
        default: dot_rows<bits, dtype, 4>(w, x, o, n, out, r); break;
      }
    }
  }
}

template <int bits>
void dot_bits(const Matrix& w, const float* x, int64_t rows, const OutTile& out) {
  if constexpr (bits == kE2M1 || bits == kE4M3) return dot_typed<bits, DType::u8>(w, x, rows, out);
  switch (w.dtype) {
    case DType::bf16: return dot_typed<bits, DType::bf16>(w, x, rows, out);
    case DType::f16: return dot_typed<bits, DType::f16>(w, x, rows, out);
    default: return dot_typed<bits, DType::f32>(w, x, rows, out);
  }
}

}  // namespace

void dot_f32(const Matrix& w, const float* x, int64_t rows, const OutTile& out) {
  switch (code_of(w)) {
    case 0: return dot_bits<0>(w, x, rows, out);
    case 2: return dot_bits<2>(w, x, rows, out);
    case 3: return dot_bits<3>(w, x, rows, out);
    case 4: return dot_bits<4>(w, x, rows, out);
    case 5: return dot_bits<5>(w, x, rows, out);
    case 6: return dot_bits<6>(w, x, rows, out);
    case kE2M1: return dot_bits<kE2M1>(w, x, rows, out);
    case kE4M3: return dot_bits<kE4M3>(w, x, rows, out);
    default: return dot_bits<8>(w, x, rows, out);
  }
}

}  // namespace saragossa::cpu::avx2
