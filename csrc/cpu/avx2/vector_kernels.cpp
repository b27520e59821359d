#include "cpu/simd/avx2.h"

#define SARAGOSSA_ISA avx2
#include "cpu/simd/vector_kernels.inl"
