#pragma once
// Fixed-width types of the parameter structs that C++ and MSL share, and the values that several families use.

#ifdef __METAL_VERSION__
typedef uint sg_u32;
typedef int sg_i32;
typedef float sg_f32;
#else
#include <cstdint>
typedef uint32_t sg_u32;
typedef int32_t sg_i32;
typedef float sg_f32;
#endif

// Activation of a gated MLP.
#define SG_SILU 0
#define SG_GELU_TANH 1

// Stored floats: function constants and parameters name them so. SG_E8M0: a byte, the scale 2^(byte - 127) of mxfp4 and
// mxfp8.
#define SG_F32 0
#define SG_F16 1
#define SG_BF16 2
#define SG_E8M0 3
// Beside them for the KV cache: codes of 8 bits with steps and zeros (common/kv.h).
#define SG_U8 4
