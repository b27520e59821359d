#include "quant/weight.h"

#include <algorithm>
#include <string>

namespace saragossa {
namespace {

constexpr int kAffineBits[] = {2, 3, 4, 5, 6, 8};
constexpr int kAffineGroups[] = {32, 64, 128};
constexpr int kFour[] = {4};
constexpr int kEight[] = {8};
constexpr int kMxGroups[] = {32};

constexpr FormatRow kFormats[] = {
    {Format::affine, "affine", kAffineBits, kAffineGroups, true},
    {Format::mxfp4, "mxfp4", kFour, kMxGroups, false},
    {Format::mxfp8, "mxfp8", kEight, kMxGroups, false},
};

std::string listed(std::span<const int> values) {
  std::string text;
  for (const int v : values) text += (text.empty() ? "" : ", ") + std::to_string(v);
  return text;
}

bool holds(std::span<const int> values, int value) { return std::ranges::find(values, value) != values.end(); }

}  // namespace

const FormatRow& row_of(Format format) { return kFormats[static_cast<size_t>(format)]; }

Format format_named(std::string_view name) {
  std::string names;
  for (const FormatRow& row : kFormats) {
    if (name == row.name) return row.format;
    names += std::string(names.empty() ? "" : ", ") + row.name;
  }
  fail(ErrorKind::weights, "quantisation format '", name, "' is not supported; supported are ", names);
}

void check_weight(const Weight& w, std::string_view what) {
  const auto bad = [&](const auto&... parts) { fail(ErrorKind::weights, what, ": ", parts...); };
  if (!w.quantised()) {
    if (!is_float(w.data.dtype)) bad("dense weight in ", name_of(w.data.dtype), ", supported are f32, f16, bf16");
    if (!(w.data.shape == Shape{w.out, w.in}))
      bad("shape ", w.data.shape.str(), ", expected ", Shape{w.out, w.in}.str());
    return;
  }
  const FormatRow& row = row_of(w.format);
  if (!holds(row.bits, w.bits)) bad(w.bits, " bits, supported by ", row.name, " are ", listed(row.bits));
  if (!holds(row.groups, w.group))
    bad("group size ", w.group, ", supported by ", row.name, " are ", listed(row.groups));
  if (w.in % w.group != 0) bad("input size ", w.in, " is no multiple of the group size ", w.group);
  const Shape codes{w.out, w.in * w.bits / 32};
  const Shape groups{w.out, w.in / w.group};
  if (w.data.dtype != DType::u32 || !(w.data.shape == codes))
    bad("codes ", name_of(w.data.dtype), w.data.shape.str(), ", expected u32", codes.str());
  const bool scales_fit = row.has_biases ? is_float(w.scales.dtype) : w.scales.dtype == DType::u8;
  if (!scales_fit || !(w.scales.shape == groups))
    bad("scales ", name_of(w.scales.dtype), w.scales.shape.str(), ", expected ", row.has_biases ? "" : "u8",
        groups.str());
  if (!row.has_biases) {
    if (w.biases) bad("biases, which ", row.name, " has none of");
    return;
  }
  if (w.biases.dtype != w.scales.dtype || !(w.biases.shape == groups))
    bad("biases ", name_of(w.biases.dtype), w.biases.shape.str(), ", expected ", name_of(w.scales.dtype), groups.str());
}

}  // namespace saragossa
