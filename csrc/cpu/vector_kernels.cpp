#include "cpu/vector_kernels.h"

namespace saragossa::cpu {

const VectorKernels& vector_kernels(Isa isa) {
  switch (isa) {
    default: return scalar::kernels;
  }
}

}  // namespace saragossa::cpu
