#include "cpu/vector_kernels.h"

namespace saragossa::cpu {

const VectorKernels& vector_kernels(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::avx2: return avx2::kernels;
    case Isa::avx512: return avx512::kernels;
#elif defined(__aarch64__)
    case Isa::neon: return neon::kernels;
#endif
    default: return scalar::kernels;
  }
}

}  // namespace saragossa::cpu
