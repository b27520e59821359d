// y[t] = table[ids[t]] * scale. y f32 [T, in], table [vocab, in] as in common/quant.h, ids i32 [T].
//
// One thread makes 8 or 16 values (a chunk of the format) of one row; f32, no reduction. An id outside the table gives
// a row of NaN, as the device cannot raise.

#include <metal_stdlib>

#include "common/quant.h"
#include "params/embed.h"

using namespace metal;

constant uint SG_BITS [[function_constant(0)]];         // of a code; 0: dense
constant uint SG_GROUP_SHIFT [[function_constant(1)]];  // log2 of the group size
constant uint SG_DTYPE [[function_constant(2)]];        // of scales and biases, or of a dense table

constant bool sg_scaled = SG_BITS != 0;
constant bool sg_affine = SG_BITS != 0 && SG_DTYPE != SG_E8M0;

template <class Format>
inline void copy_chunk(device float* y, device const uint* row, uint k, float scale, float bias) {
  uint words[Format::words];
  Format::load(row, k, 0, words);
  for (uint i = 0; i < Format::chunk; ++i) y[k + i] = fma(Format::value(words, i), scale, bias);  // -0 + -0 is -0
}

kernel void embed(device float* y [[buffer(SG_EMBED_Y)]], device const uint* codes [[buffer(SG_EMBED_CODES)]],
                  device const uchar* scales [[buffer(SG_EMBED_SCALES), function_constant(sg_scaled)]],
                  device const uchar* biases [[buffer(SG_EMBED_BIASES), function_constant(sg_affine)]],
                  device const int* ids [[buffer(SG_EMBED_IDS)]], constant EmbedParams& p [[buffer(SG_EMBED_PARAMS)]],
                  uint i [[thread_position_in_grid]]) {
  const uint in = p.in;
  const uint chunk = SG_BITS == 0 ? 1 : SG_BITS == 8 ? 8 : 16, chunks = in / chunk;
  if (i >= p.rows * chunks) return;
  const uint t = i / chunks, k = i % chunks * chunk, id = uint(ids[t]);
  device float* to = y + t * in;
  if (id >= p.vocab) {
    for (uint j = 0; j < chunk; ++j) to[k + j] = NAN;
    return;
  }
  if (SG_BITS == 0) {
    const uint bytes = SG_DTYPE == SG_F32 ? 4 : 2;
    to[k] = sg_stored((device const uchar*)codes + ulong(id) * in * bytes, k, SG_DTYPE) * p.scale;
    return;
  }
  const ulong group = ulong(id) * (in >> SG_GROUP_SHIFT) * sg_stored_bytes(SG_DTYPE);
  const float scale = sg_stored(scales + group, k >> SG_GROUP_SHIFT, SG_DTYPE) * p.scale;
  device const uint* row = codes + ulong(id) * (in / 32 * SG_BITS);
  if (!sg_affine) {
    if (SG_BITS == 4) copy_chunk<Mxfp4>(to, row, k, scale, -0.0f);
    if (SG_BITS == 8) copy_chunk<Mxfp8>(to, row, k, scale, -0.0f);
    return;
  }
  const float bias = sg_stored(biases + group, k >> SG_GROUP_SHIFT, SG_DTYPE) * p.scale;
  if (SG_BITS == 2) copy_chunk<Affine2>(to, row, k, scale, bias);
  if (SG_BITS == 3) copy_chunk<Affine3>(to, row, k, scale, bias);
  if (SG_BITS == 4) copy_chunk<Affine4>(to, row, k, scale, bias);
  if (SG_BITS == 5) copy_chunk<Affine5>(to, row, k, scale, bias);
  if (SG_BITS == 6) copy_chunk<Affine6>(to, row, k, scale, bias);
  if (SG_BITS == 8) copy_chunk<Affine8>(to, row, k, scale, bias);
}
