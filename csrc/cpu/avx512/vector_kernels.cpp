#include "cpu/simd/avx512.h"

#define SARAGOSSA_ISA avx512
#include "cpu/simd/vector_kernels.inl"
