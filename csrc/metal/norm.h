#pragma once
// Norms on Metal that other families launch.

#include "metal/metal_encoder.h"

namespace saragossa::metal {

/// y = rms_norm(x, w), in as many threadgroups as the row fills. squares f32 [rows, (n + 3) / 4]: of each four
/// neighbours of x.
void launch_norm_split(MetalEncoder& encoder, const Tensor& y, const Tensor& x, const Tensor& squares, const Tensor& w,
                       float eps);

}  // namespace saragossa::metal
