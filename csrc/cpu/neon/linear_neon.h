#pragma once
// Parts of the NEON linears that several files share.
//
// Unit: 64 values of a row, unpacked to four vectors of int8 (linear_unpack.h says in which order). Quantised
// activations are packed in that order, first the high parts of a unit, then (int15) the low ones, so that sdot takes
// the codes where the file has them.
//
// 8-bit codes, 0 to 255, do not fit sdot's int8: it takes code - 128, and 128 * w_scale goes into the group's bias,
//   w_scale * scale * sum(code * q) + w_bias * sum = w_scale * scale * sum((code - 128) * q) + bias128 * sum,
// with bias128 = w_bias + 128 * w_scale and sum = scale * sum(q), which the packed row has anyway.

#include "cpu/linear_kernels.h"

namespace saragossa::cpu::neon {

constexpr int64_t kUnit = 64;  // values

inline int64_t parts_of(const PackFormat& f) { return f.activations == Activations::int15 ? 2 : 1; }
inline int64_t units_of(const PackFormat& f) { return (f.in + kUnit - 1) / kUnit; }

/// Packed row of the matvec form: scale f32 [groups4], sum f32 [groups4], groups4 = groups rounded up to 4, zero
/// padded; then, from a multiple of 64 bytes on, int8 [units, parts, 64].
struct MatvecRow {
  float* scale;
  float* sum;
  int8_t* units;
};

inline int64_t groups4(const PackFormat& f) { return (f.groups() + 3) / 4 * 4; }
inline int64_t matvec_header_bytes(const PackFormat& f) { return (8 * groups4(f) + 63) / 64 * 64; }
inline int64_t matvec_row_bytes(const PackFormat& f) {
  return matvec_header_bytes(f) + units_of(f) * parts_of(f) * kUnit;
}
inline MatvecRow matvec_row(const PackFormat& f, const uint8_t* packed, int64_t r) {
  auto* row = const_cast<uint8_t*>(packed) + r * matvec_row_bytes(f);
  auto* scale = reinterpret_cast<float*>(row);
  return {scale, scale + groups4(f), reinterpret_cast<int8_t*>(row + matvec_header_bytes(f))};
}

/// Packed tile of the matmul form: scale f32 [groups, rows], sum f32 [groups, rows], and, from a multiple of 64 bytes
/// on, int8 [units * 16 quads, 2, 4 rows, 4]: two vectors per four values, the high and the low parts of 4 rows
/// (int15) or rows 0-3 and rows 4-7 (int8). Rows that do not exist are zeros. Quads: quad_place(), linear_unpack.h.
constexpr int64_t kTileRows = 8;  // the most that a tile has

struct MatmulTile {
  float* scale;
  float* sum;
  int8_t* quads;
};

inline int64_t tile_rows(const PackFormat& f) { return kTileRows / parts_of(f); }
inline int64_t tile_header_bytes(const PackFormat& f) { return (8 * f.groups() * tile_rows(f) + 63) / 64 * 64; }
inline int64_t tile_bytes(const PackFormat& f) { return tile_header_bytes(f) + units_of(f) * kUnit * 8; }
inline MatmulTile matmul_tile(const PackFormat& f, const uint8_t* packed, int64_t tile) {
  auto* p = const_cast<uint8_t*>(packed) + tile * tile_bytes(f);
  auto* scale = reinterpret_cast<float*>(p);
  return {scale, scale + f.groups() * tile_rows(f), reinterpret_cast<int8_t*>(p + tile_header_bytes(f))};
}

int64_t packed_bytes(const PackFormat& f, int64_t rows);
void pack(const PackFormat& f, const float* x, int64_t rows, int64_t begin, int64_t end, uint8_t* packed);
void matvec_int(const Matrix& w, const PackFormat& f, const uint8_t* packed, int64_t rows, const OutTile& out);
constexpr int64_t kPanelOuts = 16;
void matmul_int(const Matrix& w, const PackFormat& f, const uint8_t* packed, int64_t rows, const OutTile& out,
                uint8_t* scratch);
int64_t matmul_scratch(const PackFormat& f);

void dot_f32(const Matrix& w, const float* x, int64_t rows, const OutTile& out);

}  // namespace saragossa::cpu::neon
