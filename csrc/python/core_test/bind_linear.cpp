// Hook for what tests of linears need beyond the encoder's ops.

#include "python/core_test/core_test.h"

namespace saragossa {

void register_linear(py::module_&) {}

}  // namespace saragossa
