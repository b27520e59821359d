#pragma once
// Parts of the AVX2 linears that several files share.
//
// Packed row of the matvec form, zero padded, 64-byte aligned:
//   scale f32 [groups8], sum f32 [groups8]   groups8 = groups rounded up to 8
//   tail f32 [8]                             sums of the last 8 groups, 0 where a full vector has had them
//   units: 64 values each, unit_bytes()      in the order in which unpack() (linear_matvec.cpp) yields codes

#include "cpu/linear_kernels.h"

namespace saragossa::cpu::avx2 {

constexpr int64_t kUnit = 64;  // values

struct MatvecRow {
  const float* scale;
  const float* sum;
  const float* tail;
  const uint8_t* units;
};

inline int64_t groups8(const PackFormat& f) { return (f.groups() + 7) / 8 * 8; }
inline int64_t units_of(const PackFormat& f) { return (f.in + kUnit - 1) / kUnit; }
inline int64_t unit_bytes(const PackFormat& f) {
  return f.activations == Activations::int15 || f.bits == 8 ? 2 * kUnit : kUnit;
}
inline int64_t matvec_row_bytes(const PackFormat& f) {
  return (8 * groups8(f) + 32 + 63) / 64 * 64 + units_of(f) * unit_bytes(f);
}
inline MatvecRow matvec_row(const PackFormat& f, const uint8_t* packed, int64_t r) {
  const uint8_t* row = packed + r * matvec_row_bytes(f);
  const auto* scale = reinterpret_cast<const float*>(row);
  return {scale, scale + groups8(f), scale + 2 * groups8(f), row + (8 * groups8(f) + 32 + 63) / 64 * 64};
}

int64_t packed_bytes(const PackFormat& f, int64_t rows);
void pack(const PackFormat& f, const float* x, int64_t rows, int64_t begin, int64_t end, uint8_t* packed);
void matvec_int(const Matrix& w, const PackFormat& f, const uint8_t* packed, int64_t rows, const OutTile& out);

// Packed form of the matmul: tiles of 6 rows, the last one padded with zeros, each
//   scale f32 [groups, 6], sum f32 [groups, 6], rounded up to 64 bytes
//   q i16 [in64 / 2, 6, 2]    pairs in the order in which unpack_panel() (linear_matmul.cpp) yields codes
constexpr int64_t kTileRows = 6;

struct MatmulTile {
  const float* scale;
  const float* sum;
  const int16_t* q;
};

inline int64_t tile_scale_bytes(const PackFormat& f) { return (f.groups() * kTileRows * 8 + 63) / 64 * 64; }
inline int64_t tile_bytes(const PackFormat& f) { return tile_scale_bytes(f) + units_of(f) * kUnit * kTileRows * 2; }
inline MatmulTile matmul_tile(const PackFormat& f, const uint8_t* packed, int64_t tile) {
  const uint8_t* p = packed + tile * tile_bytes(f);
  const auto* scale = reinterpret_cast<const float*>(p);
  return {scale, scale + f.groups() * kTileRows, reinterpret_cast<const int16_t*>(p + tile_scale_bytes(f))};
}

void matmul_int(const Matrix& w, const PackFormat& f, const uint8_t* packed, int64_t rows, const OutTile& out,
                uint8_t* scratch);
int64_t matmul_scratch(const PackFormat& f);

void dot_f32(const Matrix& w, const float* x, int64_t rows, const OutTile& out);

}  // namespace saragossa::cpu::avx2
