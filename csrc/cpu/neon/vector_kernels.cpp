#include "cpu/simd/neon.h"

#define SARAGOSSA_ISA neon
#include "cpu/simd/vector_kernels.inl"
