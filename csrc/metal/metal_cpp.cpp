// The one place where metal-cpp's symbols are defined.
#define NS_PRIVATE_IMPLEMENTATION
#define MTL_PRIVATE_IMPLEMENTATION
#include "metal/metal_cpp.h"
