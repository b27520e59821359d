// Affine matmul with quantised activations, for more rows than the matvec form takes:
//   y[r, o] = sum over groups g of  (w_scale[o, g] * x_scale[r, g]) * sum(code * q)  +  w_bias[o, g] * x_sum[r, g]
//
// Codes of 16 outputs and kBlock values are unpacked once to i16 pairs [pair, 16 outputs] (the first cache holds
// them), then all the tiles of 6 rows pass: 12 sums of eight outputs, vpmaddwd with a broadcast pair of q. The
// integer sum of a group is exact (128 * 255 * 16256 < 2^31); groups are added to y in ascending order, whatever
// the number of rows. At most 32 products per cycle (two vpmaddwd).
//
// Zen 3, 256 rows, Qwen3-0.6B's linears in 4 bits, group 64: 107-115 tok/s on one thread, 50 G products/s.
//
// Ownership: one thread has outputs [begin, end) of all rows.

#include <cstring>

#include "cpu/avx2/linear_avx2.h"
#include "cpu/avx2/simd_linear.h"

namespace saragossa::cpu::avx2 {
namespace {

constexpr int64_t kPanelOuts = 16;
constexpr int64_t kBlock = 512;  // values

struct Panel {
  int32_t* pairs;  // [kBlock / 2, 16]
  float* scale;    // [groups of the block, 16]
  float* bias;
};

Panel panel_in(uint8_t* scratch) {
  auto* pairs = reinterpret_cast<int32_t*>(scratch);
  auto* scale = reinterpret_cast<float*>(pairs + kBlock / 2 * kPanelOuts);
  return {pairs, scale, scale + kBlock / 32 * kPanelOuts};
}

/// rows[i] holds eight 32-bit words of output i; afterwards rows[j] holds word j of the eight outputs.
inline void transpose(__m256i rows[8]) {
  __m256i a[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
    a[i + 1] = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  __m256i b[8];
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm256_unpacklo_epi64(a[i], a[i + 2]);
    b[i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 2]);
    b[i + 2] = _mm256_unpacklo_epi64(a[i + 1], a[i + 3]);
    b[i + 3] = _mm256_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
    rows[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
  }
}

/// n bytes (at most 32) from p, zeros behind them.
inline __m256i load_some(const uint8_t* p, int64_t n) {
  if (n >= 32) return load_i(p);
  alignas(32) uint8_t bytes[32] = {};
  std::memcpy(bytes, p, static_cast<size_t>(n));
  return load_i(bytes);
}

/// 16 codes from p as i16; reads at most `n` bytes.
template <int bits>
inline __m256i codes16(const uint8_t* p, int64_t n) {
  if constexpr (bits == 8) {
    return _mm256_cvtepu8_epi16(load_half(p));
  } else if constexpr (bits != 6) {
    const __m256i v = n >= 16 ? load_halves(p, p) : load_some(p, n);
    return _mm256_cvtepu8_epi16(_mm256_castsi256_si128(spread<bits, 0, 0>(v)));
  } else {
    // 12 bytes; 4 codes lie in each 3.
    const __m128i v = n >= 16 ? load_half(p) : _mm256_castsi256_si128(load_some(p, n));
    const __m128i pairs = _mm_shuffle_epi8(v, _mm_setr_epi8(0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11));
    const __m128i low = _mm_blend_epi16(pairs, _mm_srli_epi16(pairs, 4), 0xaa);
    const __m128i bytes = _mm_or_si128(_mm_and_si128(low, _mm_set1_epi16(0x3f)),
                                       _mm_and_si128(_mm_slli_epi16(low, 2), _mm_set1_epi16(0x3f00)));
    return _mm256_cvtepu8_epi16(bytes);
  }
}

/// Codes [k0, k0 + n) of outputs [o, o + 16) as i16 pairs; outputs from w.out on repeat the last one.
template <int bits>
void unpack_panel(const Matrix& w, int64_t o, int64_t k0, int64_t n, int32_t* pairs) {
  constexpr int64_t width = width_of(bits);
  const int64_t row_bytes = w.in * width / 8;
  for (int64_t half = 0; half < kPanelOuts; half += 8) {
    const uint8_t* row[8];
    for (int64_t i = 0; i < 8; ++i) row[i] = w.data + std::min(o + half + i, w.out - 1) * row_bytes + k0 * width / 8;
    constexpr int64_t step = width == 4 ? 64 : 16;
    for (int64_t k = 0; k < n; k += step) {
      const int64_t left = (n - k) * width / 8;  // bytes to the block's end
      __m256i v[8];
      for (int i = 0; i < 8; ++i) {
        if constexpr (width == 4) {
          v[i] = load_some(row[i] + k / 2, left);
        } else {
          v[i] = codes16<bits>(row[i] + k * width / 8, left);
        }
      }
      transpose(v);
      int32_t* to = pairs + k / 2 * kPanelOuts + half;
      for (int j = 0; j < 8; ++j) {
        if constexpr (width == 4) {
          const __m256i nibbles = _mm256_set1_epi16(15);
          const auto store = [&](int pair, __m256i codes) {
            if constexpr (bits == kE2M1) codes = e2m1_codes(_mm256_or_si256(codes, _mm256_set1_epi16(INT16_MIN)));
            store_i(to + (4 * j + pair) * kPanelOuts, codes);
          };
          store(0, _mm256_and_si256(v[j], nibbles));
          store(1, _mm256_and_si256(_mm256_srli_epi16(v[j], 4), nibbles));
          store(2, _mm256_and_si256(_mm256_srli_epi16(v[j], 8), nibbles));
          store(3, _mm256_srli_epi16(v[j], 12));
        } else {
          store_i(to + j * kPanelOuts, v[j]);
        }
      }
    }
  }
}

template <DType dtype>
void convert_scales(const Matrix& w, int64_t o, int64_t g0, int64_t n, const Panel& panel) {
  const int64_t groups = w.in / w.group;
  for (int64_t i = 0; i < kPanelOuts; ++i) {
    const int64_t first = std::min(o + i, w.out - 1) * groups + g0;
    for (int64_t g = 0; g < n; ++g) {
      panel.scale[g * kPanelOuts + i] = scale_one<dtype>(w.scales, first + g);
      panel.bias[g * kPanelOuts + i] = bias_one<dtype>(w.biases, first + g);
    }
  }
}

void convert_scales(const Matrix& w, int64_t o, int64_t g0, int64_t n, const Panel& panel) {
  switch (w.dtype) {
    case DType::bf16: return convert_scales<DType::bf16>(w, o, g0, n, panel);
    case DType::f16: return convert_scales<DType::f16>(w, o, g0, n, panel);
    case DType::u8: return convert_scales<DType::u8>(w, o, g0, n, panel);
    default: return convert_scales<DType::f32>(w, o, g0, n, panel);
  }
}

/// sum += v, in place and where the source has it: GCC otherwise hoists the broadcasts, spills the sums and copies
/// them (a third of the speed).
inline __attribute__((always_inline)) void add_in_place(__m256i& sum, __m256i v) {
  __asm__ volatile("vpaddd %1, %0, %0" : "+x"(sum) : "x"(v));
}

/// Two vectors of eight outputs for one row: sum += code pairs * pair of q.
inline __attribute__((always_inline)) void add_pairs(__m256i c0, __m256i c1, const int16_t* q, __m256i& sum0,
                                                     __m256i& sum1) {
  int32_t pair;
  std::memcpy(&pair, q, 4);
  const __m256i x = _mm256_set1_epi32(pair);
  add_in_place(sum0, _mm256_madd_epi16(c0, x));
  add_in_place(sum1, _mm256_madd_epi16(c1, x));
}

/// The integer sums of a group, scaled, and its bias, into y[16] of one row.
inline __attribute__((always_inline)) void add_group(__m256i sum0, __m256i sum1, const float* w_scale,
                                                     const float* w_bias, float x_scale, float x_sum, float* y) {
  const __m256 scale = _mm256_set1_ps(x_scale);
  const __m256 sum = _mm256_set1_ps(x_sum);
  const __m256 y0 = _mm256_fmadd_ps(_mm256_loadu_ps(w_bias), sum, _mm256_loadu_ps(y));
  const __m256 y1 = _mm256_fmadd_ps(_mm256_loadu_ps(w_bias + 8), sum, _mm256_loadu_ps(y + 8));
  const __m256 f0 = _mm256_mul_ps(_mm256_loadu_ps(w_scale), scale);
  const __m256 f1 = _mm256_mul_ps(_mm256_loadu_ps(w_scale + 8), scale);
  _mm256_storeu_ps(y, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum0), f0, y0));
  _mm256_storeu_ps(y + 8, _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum1), f1, y1));
}

/// One tile of rows, one group: y[6, 16] += ... The sums are named: compilers spill an array of them.
template <int pairs>
inline void dot_group(const int32_t* codes, const int16_t* q, const float* w_scale, const float* w_bias,
                      const float* x_scale, const float* x_sum, float* y) {
  const __m256i zero = _mm256_setzero_si256();
  __m256i a0 = zero, a1 = zero, b0 = zero, b1 = zero, c0 = zero, c1 = zero;
  __m256i d0 = zero, d1 = zero, e0 = zero, e1 = zero, f0 = zero, f1 = zero;
  for (int p = 0; p < pairs; ++p) {
    const __m256i w0 = load_i(codes);
    const __m256i w1 = load_i(codes + 8);
    add_pairs(w0, w1, q, a0, a1);
    add_pairs(w0, w1, q + 2, b0, b1);
    add_pairs(w0, w1, q + 4, c0, c1);
    add_pairs(w0, w1, q + 6, d0, d1);
    add_pairs(w0, w1, q + 8, e0, e1);
    add_pairs(w0, w1, q + 10, f0, f1);
    codes += kPanelOuts;
    q += 2 * kTileRows;
  }
  add_group(a0, a1, w_scale, w_bias, x_scale[0], x_sum[0], y);
  add_group(b0, b1, w_scale, w_bias, x_scale[1], x_sum[1], y + kPanelOuts);
  add_group(c0, c1, w_scale, w_bias, x_scale[2], x_sum[2], y + 2 * kPanelOuts);
  add_group(d0, d1, w_scale, w_bias, x_scale[3], x_sum[3], y + 3 * kPanelOuts);
  add_group(e0, e1, w_scale, w_bias, x_scale[4], x_sum[4], y + 4 * kPanelOuts);
  add_group(f0, f1, w_scale, w_bias, x_scale[5], x_sum[5], y + 5 * kPanelOuts);
}

template <int group>
void dot_block(const Panel& panel, const PackFormat& f, const uint8_t* packed, int64_t tiles, int64_t k0, int64_t n,
               float* y) {
  for (int64_t t = 0; t < tiles; ++t) {
    const MatmulTile tile = matmul_tile(f, packed, t);
    for (int64_t k = 0; k < n; k += group) {
      const int64_t g = (k0 + k) / group;
      dot_group<group / 2>(panel.pairs + k / 2 * kPanelOuts, tile.q + (k0 + k) * kTileRows,
                           panel.scale + k / group * kPanelOuts, panel.bias + k / group * kPanelOuts,
                           tile.scale + g * kTileRows, tile.sum + g * kTileRows, y + t * kTileRows * kPanelOuts);
    }
  }
}

}  // namespace

int64_t matmul_scratch(const PackFormat&) {
  const int64_t tiles = (kMatmulRows + kTileRows - 1) / kTileRows;
  return kBlock / 2 * kPanelOuts * 4 + 2 * kBlock / 32 * kPanelOuts * 4 + tiles * kTileRows * kPanelOuts * 4;
}

void matmul_int(const Matrix& w, const PackFormat& f, const uint8_t* packed, int64_t rows, const OutTile& out,
                uint8_t* scratch) {
  const Panel panel = panel_in(scratch);
  float* y = panel.bias + kBlock / 32 * kPanelOuts;
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  for (int64_t o = out.begin; o < out.end; o += kPanelOuts) {
    std::memset(y, 0, static_cast<size_t>(tiles * kTileRows * kPanelOuts) * sizeof(float));
    for (int64_t k = 0; k < w.in; k += kBlock) {
      const int64_t n = std::min(kBlock, w.in - k);
      switch (code_of(w)) {
        case 2: unpack_panel<2>(w, o, k, n, panel.pairs); break;
        case 3: unpack_panel<3>(w, o, k, n, panel.pairs); break;
        case 4: unpack_panel<4>(w, o, k, n, panel.pairs); break;
        case 5: unpack_panel<5>(w, o, k, n, panel.pairs); break;
        case kE2M1: unpack_panel<kE2M1>(w, o, k, n, panel.pairs); break;
        case 6: unpack_panel<6>(w, o, k, n, panel.pairs); break;
        default: unpack_panel<8>(w, o, k, n, panel.pairs); break;
      }
      convert_scales(w, o, k / w.group, n / w.group, panel);
      switch (w.group) {
        case 32: dot_block<32>(panel, f, packed, tiles, k, n, y); break;
        case 64: dot_block<64>(panel, f, packed, tiles, k, n, y); break;
        default: dot_block<128>(panel, f, packed, tiles, k, n, y); break;
      }
    }
    const int64_t n = std::min(kPanelOuts, out.end - o);
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(out.y + r * out.stride + o - out.begin, y + r * kPanelOuts, static_cast<size_t>(n) * sizeof(float));
  }
}

}  // namespace saragossa::cpu::avx2
