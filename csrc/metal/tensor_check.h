#pragma once
// Whether the tensor operations of this GPU, system and compiler compute what they should.

#include <string>

#include "device.h"

namespace saragossa::metal {

/// Runs matmul_tensor against matmul at several numbers of rows, each with another format of weights, and waits. Empty:
/// they agree; else what went wrong.
std::string check_tensor_ops(Device& device);

}  // namespace saragossa::metal
