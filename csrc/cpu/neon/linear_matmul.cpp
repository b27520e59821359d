// Affine matmul with quantised activations, for more rows than the matvec form takes:
//   y[r, o] = sum over groups g of  (w_scale[o, g] * x_scale[r, g]) * sum(code * q)  +  w_bias[o, g] * x_sum[r, g]
//
// Codes of 16 outputs and kBlock values are unpacked once to int8 quads [quad, 16 outputs, 4] (the first cache holds
// them), then all the tiles of rows pass, eight outputs at a time: 16 sums of four outputs, sdot by lane with two
// vectors of activations (4 rows in two parts, or 8 rows in one). That is 16 sdot for 4 loads, and as many chains as
// four pipes of latency 4 need. The integer sum of a group is exact; groups are added to y in ascending order, whatever
// the number of rows.
//
// Ownership: one thread has outputs [begin, end) of all rows.

#include <algorithm>
#include <cstring>

#include "cpu/neon/linear_neon.h"
#include "cpu/neon/linear_unpack.h"

namespace saragossa::cpu::neon {
namespace {

constexpr int64_t kBlock = 512;     // values
constexpr int64_t kOutsAtOnce = 8;  // two vectors
constexpr int64_t kQuadBytes = 4 * kPanelOuts;

struct Panel {
  int8_t* quads;  // [kBlock / 4, 16, 4]
  float* scale;   // [groups of the block, 16]
  float* bias;
};

Panel panel_in(uint8_t* scratch) {
  auto* quads = reinterpret_cast<int8_t*>(scratch);
  auto* scale = reinterpret_cast<float*>(quads + kBlock / 4 * kQuadBytes);
  return {quads, scale, scale + kBlock / 32 * kPanelOuts};
}

/// Four words of each of four vectors: rows become columns.
inline void transpose(int8x16_t v[4]) {
  const auto word = [](int8x16_t a) { return vreinterpretq_s32_s8(a); };
  const auto pair = [](int32x4_t a) { return vreinterpretq_s64_s32(a); };
  const int64x2_t a = pair(vtrn1q_s32(word(v[0]), word(v[1]))), b = pair(vtrn2q_s32(word(v[0]), word(v[1])));
  const int64x2_t c = pair(vtrn1q_s32(word(v[2]), word(v[3]))), d = pair(vtrn2q_s32(word(v[2]), word(v[3])));
  v[0] = vreinterpretq_s8_s64(vtrn1q_s64(a, c));
  v[1] = vreinterpretq_s8_s64(vtrn1q_s64(b, d));
  v[2] = vreinterpretq_s8_s64(vtrn2q_s64(a, c));
  v[3] = vreinterpretq_s8_s64(vtrn2q_s64(b, d));
}

/// Codes [k0, k0 + n) of outputs [o, o + 16); outputs from w.out on repeat the last one.
template <int bits>
void unpack_panel(const Matrix& w, int64_t o, int64_t k0, int64_t n, int8_t* quads) {
  for (int64_t first = 0; first < kPanelOuts; first += 4) {
    for (int64_t k = 0; k < n; k += kUnit) {
      Unit unit[4];
      for (int64_t i = 0; i < 4; ++i) {
        const uint8_t* p = w.data + (std::min(o + first + i, w.out - 1) * w.in + k0 + k) * width_of(bits) / 8;
        unit[i] = unpack<bits>(p, k + kUnit > n);
      }
      int8_t* to = quads + k / 4 * kQuadBytes + first * 4;
      SARAGOSSA_UNROLL
      for (int v = 0; v < 4; ++v) {
        int8x16_t words[4] = {unit[0].v[v], unit[1].v[v], unit[2].v[v], unit[3].v[v]};
        transpose(words);
        for (int j = 0; j < 4; ++j) vst1q_s8(to + quad_place(width_of(bits), v, j) * kQuadBytes, words[j]);
      }
    }
  }
}

void unpack_codes(const Matrix& w, int64_t o, int64_t k0, int64_t n, int8_t* quads) {
  switch (code_of(w)) {
    case 2: return unpack_panel<2>(w, o, k0, n, quads);
    case 3: return unpack_panel<3>(w, o, k0, n, quads);
    case 4: return unpack_panel<4>(w, o, k0, n, quads);
    case 5: return unpack_panel<5>(w, o, k0, n, quads);
    case kE2M1: return unpack_panel<kE2M1>(w, o, k0, n, quads);
    case 6: return unpack_panel<6>(w, o, k0, n, quads);
    default: return unpack_panel<8>(w, o, k0, n, quads);
  }
}

void convert_scales(const Matrix& w, int64_t o, int64_t g0, int64_t n, const Panel& panel) {
  for (int64_t i = 0; i < kPanelOuts; ++i) {
    const int64_t first = std::min(o + i, w.out - 1) * (w.in / w.group) + g0;
    for (int64_t g = 0; g < n; g += 4) {
      const int64_t some = std::min<int64_t>(n - g, 4);
      const float32x4_t scale = scale_of(load_scales(w.scales, w.dtype, first + g, some), code_of(w));
      const float32x4_t bias = bias_of(load_scales(w.biases, w.dtype, first + g, some), scale, code_of(w));
      float scales[4], biases[4];
      vst1q_f32(scales, scale);
      vst1q_f32(biases, bias);
      for (int64_t j = 0; j < some; ++j) {
        panel.scale[(g + j) * kPanelOuts + i] = scales[j];
        panel.bias[(g + j) * kPanelOuts + i] = biases[j];
      }
    }
  }
}

/// Four outputs, one row: y += w_scale * x_scale * dot + w_bias * x_sum.
inline void add_group(int32x4_t dot, const float* w_scale, const float* w_bias, float x_scale, float x_sum, float* y) {
  const float32x4_t biased = vfmaq_n_f32(vld1q_f32(y), vld1q_f32(w_bias), x_sum);
  vst1q_f32(y, vfmaq_f32(biased, vcvtq_f32_s32(dot), vmulq_n_f32(vld1q_f32(w_scale), x_scale)));
}

/// sum[outputs / 4][activations' vector][row] for one quad.
struct Sums {
  int32x4_t v[2][2][4];
};

inline __attribute__((always_inline)) void add_quad(const int8_t* codes, const int8_t* x, Sums& sum) {
  SARAGOSSA_UNROLL
  for (int a = 0; a < 2; ++a) {
    const int8x16_t q = vld1q_s8(x + 16 * a);
    SARAGOSSA_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int8x16_t c = vld1q_s8(codes + 16 * i);
      sum.v[i][a][0] = vdotq_laneq_s32(sum.v[i][a][0], c, q, 0);
      sum.v[i][a][1] = vdotq_laneq_s32(sum.v[i][a][1], c, q, 1);
      sum.v[i][a][2] = vdotq_laneq_s32(sum.v[i][a][2], c, q, 2);
      sum.v[i][a][3] = vdotq_laneq_s32(sum.v[i][a][3], c, q, 3);
    }
  }
}

/// One group of one tile, eight outputs: y[rows, 8] += ...
template <int group, int parts>
inline void dot_group(const int8_t* codes, const int8_t* x, const float* w_scale, const float* w_bias,
                      const float* x_scale, const float* x_sum, float* y) {
  Sums sum;
  SARAGOSSA_UNROLL
  for (int i = 0; i < 16; ++i) sum.v[i / 8][i / 4 % 2][i % 4] = vdupq_n_s32(0);
  for (int k = 0; k < group; k += 4) {
    add_quad(codes, x, sum);
    codes += kQuadBytes;
    x += 32;
  }
  SARAGOSSA_UNROLL
  for (int i = 0; i < 2; ++i) {
    SARAGOSSA_UNROLL
    for (int r = 0; r < kTileRows / parts; ++r) {
      const int32x4_t dot =
          parts == 2 ? vmlaq_n_s32(sum.v[i][1][r % 4], sum.v[i][0][r % 4], 128) : sum.v[i][r / 4][r % 4];
      add_group(dot, w_scale + 4 * i, w_bias + 4 * i, x_scale[r], x_sum[r], y + r * kOutsAtOnce + 4 * i);
    }
  }
}

/// All the tiles, values [k0, k0 + n): y[tiles, 2, rows, 8] += ...
template <int group, int parts>
void dot_block(const Panel& panel, const PackFormat& f, const uint8_t* packed, int64_t tiles, int64_t k0, int64_t n,
               float* y) {
  constexpr int64_t rows = kTileRows / parts;
  for (int64_t t = 0; t < tiles; ++t) {
    const MatmulTile tile = matmul_tile(f, packed, t);
    for (int64_t o = 0; o < kPanelOuts; o += kOutsAtOnce) {
      for (int64_t k = 0; k < n; k += group) {
        const int64_t g = (k0 + k) / group;
        const int64_t at = k / group * kPanelOuts + o;
        dot_group<group, parts>(panel.quads + k / 4 * kQuadBytes + o * 4, tile.quads + (k0 + k) * 8, panel.scale + at,
                                panel.bias + at, tile.scale + g * rows, tile.sum + g * rows, y);
      }
      y += rows * kOutsAtOnce;
    }
  }
}

template <int parts>
void dot_blocks(const Panel& panel, const PackFormat& f, const uint8_t* packed, int64_t tiles, int64_t k0, int64_t n,
                float* y) {
  switch (f.group) {
    case 32: return dot_block<32, parts>(panel, f, packed, tiles, k0, n, y);
    case 64: return dot_block<64, parts>(panel, f, packed, tiles, k0, n, y);
    default: return dot_block<128, parts>(panel, f, packed, tiles, k0, n, y);
  }
}

}  // namespace

int64_t matmul_scratch(const PackFormat&) {
  constexpr int64_t y_bytes = (kMatmulRows + kTileRows - 1) / kTileRows * kTileRows * kPanelOuts * 4;
  return kBlock / 4 * kQuadBytes + 2 * kBlock / 32 * kPanelOuts * 4 + y_bytes;
}

void matmul_int(const Matrix& w, const PackFormat& f, const uint8_t* packed, int64_t rows, const OutTile& out,
                uint8_t* scratch) {
  const Panel panel = panel_in(scratch);
  float* y = panel.bias + kBlock / 32 * kPanelOuts;
  const int64_t in_tile = tile_rows(f);
  const int64_t tiles = (rows + in_tile - 1) / in_tile;
  for (int64_t o = out.begin; o < out.end; o += kPanelOuts) {
    std::memset(y, 0, static_cast<size_t>(tiles * in_tile * kPanelOuts) * sizeof(float));
    for (int64_t k = 0; k < w.in; k += kBlock) {
      const int64_t n = std::min(kBlock, w.in - k);
      unpack_codes(w, o, k, n, panel.quads);
      convert_scales(w, o, k / w.group, n / w.group, panel);
      if (parts_of(f) == 2) {
        dot_blocks<2>(panel, f, packed, tiles, k, n, y);
      } else {
        dot_blocks<1>(panel, f, packed, tiles, k, n, y);
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < kPanelOuts && o + i < out.end; i += kOutsAtOnce) {
        const float* from = y + (r / in_tile * kPanelOuts + i) * in_tile + r % in_tile * kOutsAtOnce;
        const int64_t n = std::min(kOutsAtOnce, out.end - o - i);
        std::memcpy(out.y + r * out.stride + o + i - out.begin, from, static_cast<size_t>(n) * sizeof(float));
      }
    }
  }
}

}  // namespace saragossa::cpu::neon
