#include "cpu/avx512/linear_avx512.h"

namespace saragossa::cpu::avx512 {

const LinearKernels& linear_kernels() {
  static constexpr LinearKernels kernels{dot_f32,    packed_bytes, pack,           kTileRows,
                                         matvec_int, matmul_int,   matmul_scratch, 32};
  return kernels;
}

}  // namespace saragossa::cpu::avx512
