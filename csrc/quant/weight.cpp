#include "quant/weight.h"

namespace saragossa {

void check_weight(const Weight& w, std::string_view what) {
  const auto bad = [&](const auto&... parts) { fail(ErrorKind::weights, what, ": ", parts...); };
  if (!w.affine()) {
    if (!is_float(w.data.dtype)) bad("dense weight in ", name_of(w.data.dtype), ", supported are f32, f16, bf16");
    if (!(w.data.shape == Shape{w.out, w.in}))
      bad("shape ", w.data.shape.str(), ", expected ", Shape{w.out, w.in}.str());
    return;
  }
  if (w.bits != 4 && w.bits != 6 && w.bits != 8) bad(w.bits, " bits, supported are 4, 6, 8");
  if (w.group != 32 && w.group != 64 && w.group != 128) bad("group size ", w.group, ", supported are 32, 64, 128");
  if (w.in % w.group != 0) bad("input size ", w.in, " is no multiple of the group size ", w.group);
  const Shape codes{w.out, w.in * w.bits / 32};
  const Shape groups{w.out, w.in / w.group};
  if (w.data.dtype != DType::u32 || !(w.data.shape == codes))
    bad("codes ", name_of(w.data.dtype), w.data.shape.str(), ", expected u32", codes.str());
  if (!is_float(w.scales.dtype) || !(w.scales.shape == groups))
    bad("scales ", name_of(w.scales.dtype), w.scales.shape.str(), ", expected ", groups.str());
  if (w.biases.dtype != w.scales.dtype || !(w.biases.shape == groups))
    bad("biases ", name_of(w.biases.dtype), w.biases.shape.str(), ", expected ", name_of(w.scales.dtype), groups.str());
}

}  // namespace saragossa
