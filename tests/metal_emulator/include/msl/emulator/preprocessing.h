// What a program sees of <metal_stdlib> while it is preprocessed. The library itself (library.h) comes after the
// rewriter: it need not be rewritten.
#pragma once
#define __METAL__ 1
#define __HAVE_BFLOAT__ 1
#define __HAVE_SIMDGROUP_MATRIX__ 1
