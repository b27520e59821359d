// The Metal standard library for a CPU, written from Apple's "Metal Shading Language Specification".
// Not modelled: textures, samplers, matrices (float4x4), ray tracing, rgba swizzles of several components.
#pragma once
// clang-format off: each header needs those before it
#include "abi.h"

#include "types.h"
#include "type_traits.h"
#include "limits.h"
#include "vector.h"
#include "vector_operators.h"
#include "packed_vector.h"
#include "vector_names.h"
#include "math.h"
#include "integer.h"
#include "common.h"
#include "relational.h"
#include "geometric.h"
#include "pack.h"
#include "array.h"
#include "synchronization.h"
#include "simdgroup.h"
#include "quadgroup.h"
#include "atomic.h"
#include "simdgroup_matrix.h"
#include "entry.h"
#if __METAL_VERSION__ >= 400
#include "tensor.h"
#include "cooperative_tensor.h"
#include "matmul2d.h"
#endif
#include "constants.h"
#include "keywords.h"
// clang-format on
