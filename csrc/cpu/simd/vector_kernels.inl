// The table of one instruction set: included with SARAGOSSA_ISA as its namespace, after its vector header.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "cpu/kv_codes.h"
#include "cpu/vector_kernels.h"

namespace saragossa::cpu::SARAGOSSA_ISA {

#include "cpu/sample_math.inl"
// clang-format off
#include "cpu/simd/math.inl"
#include "cpu/simd/elementwise.inl"
#include "cpu/simd/attention.inl"
#include "cpu/simd/gated_delta.inl"
#include "cpu/simd/delta_chunk.inl"
#include "cpu/simd/sample.inl"
// clang-format on

const VectorKernels kernels = {rms_norm,
                               norm_add,
                               add_op,
                               act_mul,
                               sigmoid_mul,
                               scale_by,
                               softcap,
                               rotate,
                               to_bf16,
                               to_codes,
                               {nullptr, span, merge, tile},
                               {scan, process, masses, histogram, draw, sum_exp},
                               {pack_conv, conv, l2_norm, gates, step, chunks}};

}  // namespace saragossa::cpu::SARAGOSSA_ISA
