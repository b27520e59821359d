#include "cpu/avx2/linear_avx2.h"

namespace saragossa::cpu::avx2 {

const LinearKernels& linear_kernels() {
  static constexpr LinearKernels kernels{dot_f32,    packed_bytes, pack,           kTileRows,
                                         matvec_int, matmul_int,   matmul_scratch, 16};
  return kernels;
}

}  // namespace saragossa::cpu::avx2
