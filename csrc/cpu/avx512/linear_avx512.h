#pragma once
// Parts of the AVX-512 linears that several files share. Nothing here, nor in the files that include it, may put an
// inline function of another namespace into the program: the linker could choose the AVX-512 copy of it.
//
// Packed row of the matvec form, zero padded, 64-byte aligned:
//   scale f32 [groups16], sum f32 [groups16]   groups16 = groups rounded up to 16
//   units: 128 values each                     in the order in which unpack() (linear_matvec.cpp) yields codes

#include "cpu/linear_kernels.h"

namespace saragossa::cpu::avx512 {

constexpr int64_t kUnit = 128;  // values

struct MatvecRow {
  const float* scale;
  const float* sum;
  const uint8_t* units;
};

inline int64_t groups16(const PackFormat& f) { return (f.in / f.group + 15) / 16 * 16; }
inline int64_t units_of(const PackFormat& f) { return (f.in + kUnit - 1) / kUnit; }
inline int64_t unit_bytes(const PackFormat& f) { return f.activations == Activations::int15 ? 2 * kUnit : kUnit; }
inline int64_t matvec_row_bytes(const PackFormat& f) { return 8 * groups16(f) + units_of(f) * unit_bytes(f); }
inline MatvecRow matvec_row(const PackFormat& f, const uint8_t* packed, int64_t r) {
  const auto* scale = reinterpret_cast<const float*>(packed + r * matvec_row_bytes(f));
  return {scale, scale + groups16(f), reinterpret_cast<const uint8_t*>(scale + 2 * groups16(f))};
}

// Packed form of the matmul: tiles of 12 rows, the last one padded with zeros, each
//   scale f32 [groups, 12], sum f32 [groups, 12], rounded up to 64 bytes
//   words i32 [words, 12]    two values i16 (int15) or four i8 (int8) each, in the order of unpack_panel()
constexpr int64_t kTileRows = 12;

struct MatmulTile {
  const float* scale;
  const float* sum;
  const int32_t* words;
};

/// Values in a word.
inline int64_t word_values(const PackFormat& f) { return f.activations == Activations::int15 ? 2 : 4; }
inline int64_t tile_scale_bytes(const PackFormat& f) { return (f.in / f.group * kTileRows * 8 + 63) / 64 * 64; }
inline int64_t tile_bytes(const PackFormat& f) {
  return tile_scale_bytes(f) + (f.in / word_values(f) * kTileRows * 4 + 63) / 64 * 64;
}
inline MatmulTile matmul_tile(const PackFormat& f, const uint8_t* packed, int64_t tile) {
  const uint8_t* p = packed + tile * tile_bytes(f);
  const auto* scale = reinterpret_cast<const float*>(p);
  return {scale, scale + f.in / f.group * kTileRows, reinterpret_cast<const int32_t*>(p + tile_scale_bytes(f))};
}

int64_t packed_bytes(const PackFormat& f, int64_t rows);
void pack(const PackFormat& f, const float* x, int64_t rows, int64_t begin, int64_t end, uint8_t* packed);
void matvec_int(const Matrix& w, const PackFormat& f, const uint8_t* packed, int64_t rows, const OutTile& out);
void matmul_int(const Matrix& w, const PackFormat& f, const uint8_t* packed, int64_t rows, const OutTile& out,
                uint8_t* scratch);
int64_t matmul_scratch(const PackFormat& f);
void dot_f32(const Matrix& w, const float* x, int64_t rows, const OutTile& out);

}  // namespace saragossa::cpu::avx512
