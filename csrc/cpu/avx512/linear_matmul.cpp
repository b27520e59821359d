// Affine matmul with quantised activations, for more rows than the matvec form takes:
//   y[r, o] = sum over groups g of  (w_scale[o, g] * x_scale[r, g]) * sum(code * q)  +  w_bias[o, g] * x_sum[r, g]
//
// Codes of 32 outputs and kBlock values are unpacked once to words [word, 32 outputs] (the first cache holds them),
// then all the tiles of 12 rows pass: 24 sums of 16 outputs; of the last one 8 rows or less go by fours. A word is two
// i16 (int15: vpdpwssd) or four u8 (int8: vpdpbusd). The integer sum of a group is exact (128 * 255 * 16256 < 2^31);
// groups are added to y in ascending order, whatever the number of rows.
//
// Ownership: one thread has outputs [begin, end) of all rows.

#include <algorithm>
#include <cstring>

#include "cpu/avx512/linear_avx512.h"
#include "cpu/avx512/linear_simd.h"

namespace saragossa::cpu::avx512 {
namespace {

constexpr int64_t kPanelOuts = 32;
constexpr int64_t kBlock = 256;  // values

struct Panel {
  int32_t* words;  // [kBlock / values of a word, 32]
  float* scale;    // [groups of the block, 32]
  float* bias;
  float* y;  // [rows of all tiles, 32]
};

Panel panel_in(uint8_t* scratch) {
  auto* words = reinterpret_cast<int32_t*>(scratch);
  auto* scale = reinterpret_cast<float*>(words + kBlock / 2 * kPanelOuts);
  float* bias = scale + kBlock / 32 * kPanelOuts;
  return {words, scale, bias, bias + kBlock / 32 * kPanelOuts};
}

/// rows[i] holds sixteen words of output i; afterwards rows[j] holds word j of the sixteen outputs.
inline void transpose(__m512i rows[16]) {
  __m512i a[16];
  __m512i b[16];
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
    b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
    b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
    b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
  // Lane j of b[4 q + i]: word 4 j + i of outputs [4 q, 4 q + 4).
  for (int i = 0; i < 4; ++i) {
    const __m512i low0 = _mm512_shuffle_i32x4(b[i], b[i + 4], 0x44);
    const __m512i high0 = _mm512_shuffle_i32x4(b[i], b[i + 4], 0xee);
    const __m512i low1 = _mm512_shuffle_i32x4(b[i + 8], b[i + 12], 0x44);
    const __m512i high1 = _mm512_shuffle_i32x4(b[i + 8], b[i + 12], 0xee);
    rows[i] = _mm512_shuffle_i32x4(low0, low1, 0x88);
    rows[i + 4] = _mm512_shuffle_i32x4(low0, low1, 0xdd);
    rows[i + 8] = _mm512_shuffle_i32x4(high0, high1, 0x88);
    rows[i + 12] = _mm512_shuffle_i32x4(high0, high1, 0xdd);
  }
}

/// Four codes in bytes (a, b, c, d): a word, or (a, c) and (b, d) as i16.
template <bool two_parts>
inline int32_t* store_words(__m512i bytes, int32_t* to) {
  if constexpr (!two_parts) {
    store_i(to, bytes);
    return to + kPanelOuts;
  } else {
    store_i(to, _mm512_and_si512(bytes, _mm512_set1_epi16(0xff)));
    store_i(to + kPanelOuts, _mm512_srli_epi16(bytes, 8));
    return to + 2 * kPanelOuts;
  }
}

/// Codes [k0, k0 + n) of outputs [o, o + 32) as words; outputs from w.out on repeat the last one.
template <int bits, bool two_parts>
void unpack_panel(const Matrix& w, int64_t o, int64_t k0, int64_t n, int32_t* words) {
  constexpr int64_t width = width_of(bits);
  constexpr int64_t step = width == 4 ? 128 : 64;  // values in 16 words of codes
  const int64_t row_bytes = w.in * width / 8;
  for (int64_t half = 0; half < kPanelOuts; half += 16) {
    int32_t* to = words + half;
    for (int64_t k = 0; k < n; k += step) {
      const int64_t bytes = std::min(step, n - k) * width / 8;
      __m512i v[16];
      for (int64_t i = 0; i < 16; ++i) {
        v[i] = load_bytes(w.data + std::min(o + half + i, w.out - 1) * row_bytes + (k0 + k) * width / 8, bytes);
        if constexpr (bits == 2)  // 4 bytes to a lane
          v[i] = spread<2, 0, 0>(
              _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0), v[i]));
        if constexpr (bits == 3)  // 6 bytes
          v[i] = spread<3, 0, 2>(
              _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 1, 0, 0, 1, 2, 0, 0, 3, 4, 0, 0, 4, 5, 0, 0), v[i]));
        if constexpr (bits == 5)  // 10 bytes
          v[i] = spread<5, 0, 2>(
              _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 1, 2, 0, 2, 3, 4, 0, 5, 6, 7, 0, 7, 8, 9, 0), v[i]));
        if constexpr (bits == 6)  // 12 bytes
          v[i] = spread6(
              _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 1, 2, 0, 3, 4, 5, 0, 6, 7, 8, 0, 9, 10, 11, 0), v[i]));
      }
      transpose(v);
      for (int j = 0; j < 16; ++j) {
        if constexpr (bits == 4) {
          const __m512i nibble = _mm512_set1_epi8(15);
          to = store_words<two_parts>(_mm512_and_si512(v[j], nibble), to);
          to = store_words<two_parts>(_mm512_and_si512(_mm512_srli_epi16(v[j], 4), nibble), to);
        } else if constexpr (bits == kE2M1) {
          const __m512i nibble = _mm512_set1_epi8(15);
          to = store_words<two_parts>(e2m1_codes(_mm512_and_si512(v[j], nibble)), to);
          to = store_words<two_parts>(e2m1_codes(_mm512_and_si512(_mm512_srli_epi16(v[j], 4), nibble)), to);
        } else {
          to = store_words<two_parts>(v[j], to);
        }
      }
    }
  }
}

/// Groups [g0, g0 + n), at most 16, of 32 outputs of one scale tensor as floats [group, 32]; of mxfp4 times `unit`.
template <DType dtype>
void convert_scales(const Matrix& w, const uint8_t* scales, int64_t o, int64_t g0, int64_t n, float unit, float* to) {
  const int64_t groups = w.in / w.group;
  for (int64_t half = 0; half < kPanelOuts; half += 16) {
    __m512i v[16];
    for (int64_t i = 0; i < 16; ++i)
      v[i] = _mm512_castps_si512(load_floats<dtype>(scales, std::min(o + half + i, w.out - 1) * groups + g0, lanes(n)));
    transpose(v);
    for (int64_t g = 0; g < n; ++g) {
      if constexpr (dtype == DType::u8)
        v[g] = _mm512_castps_si512(_mm512_mul_ps(_mm512_castsi512_ps(v[g]), _mm512_set1_ps(unit)));
      store_i(to + g * kPanelOuts + half, v[g]);
    }
  }
}

void convert_scales(const Matrix& w, const uint8_t* scales, int64_t o, int64_t g0, int64_t n, float unit, float* to) {
  switch (w.dtype) {
    case DType::bf16: return convert_scales<DType::bf16>(w, scales, o, g0, n, unit, to);
    case DType::f16: return convert_scales<DType::f16>(w, scales, o, g0, n, unit, to);
    case DType::u8: return convert_scales<DType::u8>(w, scales, o, g0, n, unit, to);
    default: return convert_scales<DType::f32>(w, scales, o, g0, n, unit, to);
  }
}

/// sum += products of codes and q, in place: with the intrinsics GCC copies the 24 sums and keeps them in memory, too.
template <bool two_parts>
inline __attribute__((always_inline)) void add_words(__m512i& sum, __m512i codes, __m512i q) {
#if defined(__AVX512VNNI__)
  if constexpr (two_parts) {
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(codes), "v"(q));
  } else {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(codes), "v"(q));
  }
#else  // emulated
  sum = two_parts ? _mm512_dpwssd_epi32(sum, codes, q) : _mm512_dpbusd_epi32(sum, codes, q);
#endif
}

/// Scales and biases of 32 outputs.
struct GroupWeights {
  __m512 scale0, scale1, bias0, bias1;
};

/// The integer sums of a group, scaled, and its bias, into y[32] of one row.
inline __attribute__((always_inline)) void add_group(__m512i sum0, __m512i sum1, const GroupWeights& w, float x_scale,
                                                     float x_sum, float* y) {
  const __m512 scale = _mm512_set1_ps(x_scale);
  const __m512 sum = _mm512_set1_ps(x_sum);
  const __m512 y0 = _mm512_fmadd_ps(w.bias0, sum, _mm512_loadu_ps(y));
  const __m512 y1 = _mm512_fmadd_ps(w.bias1, sum, _mm512_loadu_ps(y + 16));
  _mm512_storeu_ps(y, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum0), _mm512_mul_ps(w.scale0, scale), y0));
  _mm512_storeu_ps(y + 16, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum1), _mm512_mul_ps(w.scale1, scale), y1));
}

/// Sums of 32 outputs of four rows. They are named: compilers keep an array of them in memory.
template <bool two_parts>
struct FourRows {
  __m512i a0 = _mm512_setzero_si512(), a1 = a0, b0 = a0, b1 = a0, c0 = a0, c1 = a0, d0 = a0, d1 = a0;

  inline __attribute__((always_inline)) void add(__m512i w0, __m512i w1, const int32_t* q) {
    add_row(w0, w1, q[0], a0, a1);
    add_row(w0, w1, q[1], b0, b1);
    add_row(w0, w1, q[2], c0, c1);
    add_row(w0, w1, q[3], d0, d1);
  }
  inline __attribute__((always_inline)) void finish(const GroupWeights& w, const float* x_scale, const float* x_sum,
                                                    float* y) const {
    add_group(a0, a1, w, x_scale[0], x_sum[0], y + 0 * kPanelOuts);
    add_group(b0, b1, w, x_scale[1], x_sum[1], y + 1 * kPanelOuts);
    add_group(c0, c1, w, x_scale[2], x_sum[2], y + 2 * kPanelOuts);
    add_group(d0, d1, w, x_scale[3], x_sum[3], y + 3 * kPanelOuts);
  }

 private:
  static inline __attribute__((always_inline)) void add_row(__m512i w0, __m512i w1, int32_t q, __m512i& sum0,
                                                            __m512i& sum1) {
    const __m512i x = _mm512_set1_epi32(q);
    add_words<two_parts>(sum0, w0, x);
    add_words<two_parts>(sum1, w1, x);
  }
};

/// One group of the 12 rows of a tile, or of four of them: y[rows, 32] += ...
template <int words, bool two_parts, int rows>
inline void dot_group(const int32_t* codes, const int32_t* q, const float* w_scale, const float* w_bias,
                      const float* x_scale, const float* x_sum, float* y) {
  static_assert(rows == 4 || rows == kTileRows);
  FourRows<two_parts> first, second, third;
  for (int p = 0; p < words; ++p) {
    const __m512i w0 = load_i(codes);
    const __m512i w1 = load_i(codes + 16);
    first.add(w0, w1, q);
    if constexpr (rows == kTileRows) {
      second.add(w0, w1, q + 4);
      third.add(w0, w1, q + 8);
    }
    codes += kPanelOuts;
    q += kTileRows;
  }
  const GroupWeights w{_mm512_loadu_ps(w_scale), _mm512_loadu_ps(w_scale + 16), _mm512_loadu_ps(w_bias),
                       _mm512_loadu_ps(w_bias + 16)};
  first.finish(w, x_scale, x_sum, y);
  if constexpr (rows == kTileRows) {
    second.finish(w, x_scale + 4, x_sum + 4, y + 4 * kPanelOuts);
    third.finish(w, x_scale + 8, x_sum + 8, y + 8 * kPanelOuts);
  }
  // y stays in memory between groups: GCC would keep a second copy of it on the stack.
  __asm__ volatile("" ::: "memory");
}

/// Values [k0, k0 + n) of all rows.
template <int group, bool two_parts>
void dot_block(const Panel& panel, const PackFormat& f, const uint8_t* packed, int64_t rows, int64_t k0, int64_t n) {
  constexpr int64_t values = two_parts ? 2 : 4;  // of a word
  constexpr int words = group / values;
  for (int64_t r = 0; r < rows; r += kTileRows) {
    const MatmulTile tile = matmul_tile(f, packed, r / kTileRows);
    for (int64_t k = 0; k < n; k += group) {
      const int64_t g = (k0 + k) / group * kTileRows;
      const int32_t* codes = panel.words + k / values * kPanelOuts;
      const int32_t* q = tile.words + (k0 + k) / values * kTileRows;
      const float* w_scale = panel.scale + k / group * kPanelOuts;
      const float* w_bias = panel.bias + k / group * kPanelOuts;
      float* y = panel.y + r * kPanelOuts;
      if (rows - r > 8) {
        dot_group<words, two_parts, kTileRows>(codes, q, w_scale, w_bias, tile.scale + g, tile.sum + g, y);
        continue;
      }
      for (int64_t i = 0; i < rows - r; i += 4)
        dot_group<words, two_parts, 4>(codes, q + i, w_scale, w_bias, tile.scale + g + i, tile.sum + g + i,
                                       y + i * kPanelOuts);
    }
  }
}

/// The codes that unpack_panel will read next: they come from memory while the rows pass.
void prefetch_panel(const Matrix& w, int64_t o, int64_t k0) {
  const int64_t row_bytes = w.in * w.bits / 8;
  const int64_t bytes = std::min(kBlock, w.in - k0) * w.bits / 8;
  for (int64_t i = o; i < std::min(o + kPanelOuts, w.out); ++i) {
    const auto* codes = reinterpret_cast<const char*>(w.data + i * row_bytes + k0 * w.bits / 8);
    for (int64_t line = 0; line < bytes; line += 64) _mm_prefetch(codes + line, _MM_HINT_T1);
  }
}

template <bool two_parts>
void panel_block(const Matrix& w, const Panel& panel, const PackFormat& f, const uint8_t* packed, int64_t rows,
                 int64_t o, int64_t k, int64_t n) {
  switch (code_of(w)) {
    case 2: unpack_panel<2, two_parts>(w, o, k, n, panel.words); break;
    case 3: unpack_panel<3, two_parts>(w, o, k, n, panel.words); break;
    case 4: unpack_panel<4, two_parts>(w, o, k, n, panel.words); break;
    case 5: unpack_panel<5, two_parts>(w, o, k, n, panel.words); break;
    case kE2M1: unpack_panel<kE2M1, two_parts>(w, o, k, n, panel.words); break;
    case 6: unpack_panel<6, two_parts>(w, o, k, n, panel.words); break;
    default: unpack_panel<8, two_parts>(w, o, k, n, panel.words); break;
  }
  convert_scales(w, w.scales, o, k / w.group, n / w.group, 0.5f, panel.scale);
  convert_scales(w, w.biases, o, k / w.group, n / w.group, -6.0f, panel.bias);
  if (k + n < w.in)
    prefetch_panel(w, o, k + n);
  else
    prefetch_panel(w, o + kPanelOuts, 0);  // or another worker's
  switch (w.group) {
    case 32: return dot_block<32, two_parts>(panel, f, packed, rows, k, n);
    case 64: return dot_block<64, two_parts>(panel, f, packed, rows, k, n);
    default: return dot_block<128, two_parts>(panel, f, packed, rows, k, n);
  }
}

}  // namespace

int64_t matmul_scratch(const PackFormat&) {
  const int64_t tiles = (kMatmulRows + kTileRows - 1) / kTileRows;
  return (kBlock / 2 + 2 * kBlock / 32 + tiles * kTileRows) * kPanelOuts * 4;
}

void matmul_int(const Matrix& w, const PackFormat& f, const uint8_t* packed, int64_t rows, const OutTile& out,
                uint8_t* scratch) {
  const Panel panel = panel_in(scratch);
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  for (int64_t o = out.begin; o < out.end; o += kPanelOuts) {
    std::memset(panel.y, 0, static_cast<size_t>(tiles * kTileRows * kPanelOuts) * sizeof(float));
    for (int64_t k = 0; k < w.in; k += kBlock) {
      const int64_t n = std::min(kBlock, w.in - k);
      if (f.activations == Activations::int15) {
        panel_block<true>(w, panel, f, packed, rows, o, k, n);
      } else {
        panel_block<false>(w, panel, f, packed, rows, o, k, n);
      }
    }
    const auto bytes = static_cast<size_t>(std::min(kPanelOuts, out.end - o)) * sizeof(float);
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(out.y + r * out.stride + o - out.begin, panel.y + r * kPanelOuts, bytes);
  }
}

}  // namespace saragossa::cpu::avx512
