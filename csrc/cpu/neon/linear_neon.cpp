#include "cpu/neon/linear_neon.h"

namespace saragossa::cpu::neon {

const LinearKernels& linear_kernels() {
  static constexpr LinearKernels kernels{dot_f32,    packed_bytes, pack,           kTileRows,
                                         matvec_int, matmul_int,   matmul_scratch, kPanelOuts};
  return kernels;
}

}  // namespace saragossa::cpu::neon
