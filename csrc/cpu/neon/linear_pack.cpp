// Quantises activations per group and packs them: linear_neon.h has the layouts.
// The numbers are those of linear_kernels.h, bit for bit the scalar reference's.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/neon/linear_neon.h"
#include "cpu/neon/linear_unpack.h"

namespace saragossa::cpu::neon {
namespace {

struct GroupScale {
  float scale;
  float sum;
};

/// q[0, n) = rint(x * limit / max |x|), n a multiple of 32.
GroupScale quantise_group(const float* x, int64_t n, float limit, int16_t* q) {
  uint32x4_t most4 = vdupq_n_u32(0);  // as integers: an infinity or a NaN is above every number
  for (int64_t i = 0; i < n; i += 4)
    most4 = vmaxq_u32(most4, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), vdupq_n_u32(0x7fffffffu)));
  const uint32_t bits = vmaxvq_u32(most4);
  const float most = std::bit_cast<float>(bits);
  const bool finite = bits < 0x7f800000u;
  if (!finite || most < kSmallestMax) {
    std::memset(q, 0, static_cast<size_t>(n) * sizeof(int16_t));
    const float scale = finite ? 0.0f : NAN;
    return {scale, scale};
  }
  const float32x4_t inverse = vdupq_n_f32(limit / most);
  int32x4_t sum = vdupq_n_s32(0);
  for (int64_t i = 0; i < n; i += 8) {
    const int32x4_t a = vcvtnq_s32_f32(vmulq_f32(vld1q_f32(x + i), inverse));
    const int32x4_t b = vcvtnq_s32_f32(vmulq_f32(vld1q_f32(x + i + 4), inverse));
    sum = vaddq_s32(sum, vaddq_s32(a, b));
    vst1q_s16(q + i, vcombine_s16(vmovn_s32(a), vmovn_s32(b)));
  }
  const float scale = most / limit;
  return {scale, scale * static_cast<float>(vaddvq_s32(sum))};
}

/// Part 0 or 1 of 64 values, in the order of the codes. One part: the values themselves.
Unit part_of(const int16_t* q, int bits, int64_t parts, int64_t part) {
  int8_t bytes[kUnit];
  for (int64_t i = 0; i < kUnit; i += 8) {
    int16x8_t v = vld1q_s16(q + i);
    if (parts == 2) {
      const int16x8_t high = vshrq_n_s16(vaddq_s16(v, vdupq_n_s16(64)), 7);
      v = part == 0 ? high : vsubq_s16(v, vshlq_n_s16(high, 7));
    }
    vst1_s8(bytes + i, vmovn_s16(v));
  }
  return in_unit_order(bytes, bits);
}

/// One row, span by span: group(g, GroupScale) for each group, unit(u, q) for each unit, zeros behind the row's end.
template <class Group, class Unit>
void quantise_row(const PackFormat& f, const float* x, const Group& group, const Unit& unit) {
  const float limit = quant_limit(f.activations);
  const int64_t span = std::max<int64_t>(f.group, kUnit);
  int16_t q[128] = {};
  for (int64_t k = 0; k < f.in; k += span) {
    const int64_t n = std::min(span, f.in - k);
    if (n < span) std::memset(q, 0, sizeof(q));
    for (int64_t i = 0; i < n; i += f.group) group((k + i) / f.group, quantise_group(x + k + i, f.group, limit, q + i));
    for (int64_t i = 0; i < n; i += kUnit) unit((k + i) / kUnit, q + i);
  }
}

void pack_matvec_row(const PackFormat& f, const float* x, uint8_t* packed_row) {
  const MatvecRow row = matvec_row(f, packed_row, 0);
  const int64_t parts = parts_of(f);
  quantise_row(
      f, x,
      [&](int64_t g, const GroupScale& s) {
        row.scale[g] = s.scale;
        row.sum[g] = s.sum;
      },
      [&](int64_t u, const int16_t* q) {
        for (int64_t p = 0; p < parts; ++p) {
          const Unit part = part_of(q, f.bits, parts, p);
          for (int v = 0; v < 4; ++v) vst1q_s8(row.units + (u * parts + p) * kUnit + 16 * v, part.v[v]);
        }
      });
  for (int64_t g = f.groups(); g < groups4(f); ++g) row.scale[g] = row.sum[g] = 0.0f;
}

/// Row i of a tile.
void pack_tile_row(const PackFormat& f, const float* x, const MatmulTile& tile, int64_t i) {
  const int64_t parts = parts_of(f);
  const int64_t rows = tile_rows(f);
  quantise_row(
      f, x,
      [&](int64_t g, const GroupScale& s) {
        tile.scale[g * rows + i] = s.scale;
        tile.sum[g * rows + i] = s.sum;
      },
      [&](int64_t u, const int16_t* q) {
        for (int64_t p = 0; p < parts; ++p) {
          const Unit part = part_of(q, f.bits, parts, p);
          int8_t quads[kUnit];
          for (int v = 0; v < 4; ++v) vst1q_s8(quads + 16 * v, part.v[v]);
          int8_t* to = tile.quads + u * kUnit * 8 + p * 16 + i * 4;
          for (int j = 0; j < 16; ++j) std::memcpy(to + quad_place(f.bits, j / 4, j % 4) * 32, quads + 4 * j, 4);
        }
      });
}

}  // namespace

int64_t packed_bytes(const PackFormat& f, int64_t rows) {
  return f.matmul ? (rows + tile_rows(f) - 1) / tile_rows(f) * tile_bytes(f) : rows * matvec_row_bytes(f);
}

void pack(const PackFormat& f, const float* x, int64_t rows, int64_t begin, int64_t end, uint8_t* packed) {
  if (!f.matmul) {
    for (int64_t r = begin; r < end; ++r) pack_matvec_row(f, x + r * f.in, packed + r * matvec_row_bytes(f));
    return;
  }
  const int64_t step = tile_rows(f);
  for (int64_t r = begin; r < end; r += step) {
    const MatmulTile tile = matmul_tile(f, packed, r / step);
    if (r + step > rows) std::memset(tile.scale, 0, static_cast<size_t>(tile_bytes(f)));
    for (int64_t i = 0; i < std::min(step, rows - r); ++i) pack_tile_row(f, x + (r + i) * f.in, tile, i);
  }
}

}  // namespace saragossa::cpu::neon
