#include "weights/bound_tensor.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace saragossa {
namespace {

/// Stored tensors of one module.
size_t parts_of(const BoundTensor& t) { return t.bits == 0 ? 1 : row_of(t.format).has_biases ? 3 : 2; }

}  // namespace

WeightLoader::WeightLoader(Device& device, std::vector<BoundTensor> tensors) : device_(device) {
  for (BoundTensor& t : tensors) {
    std::string role = t.role;
    tensors_.emplace(std::move(role), std::move(t));
  }
}

const BoundTensor& WeightLoader::find(const std::string& role, const std::vector<int64_t>& shape) const {
  const auto at = tensors_.find(role);
  if (at == tensors_.end()) fail(ErrorKind::weights, "no tensor for '", role, "'");
  if (at->second.shape != shape) fail(ErrorKind::weights, "'", role, "' has another shape than the model's spec");
  return at->second;
}

std::shared_ptr<MappedFile> WeightLoader::file(const std::string& path) {
  std::shared_ptr<MappedFile>& slot = files_[path];
  if (!slot) slot = std::make_shared<MappedFile>(path);
  return slot;
}

Tensor WeightLoader::map(const StoredPart& part, Shape shape) {
  const std::shared_ptr<MappedFile> mapped = file(part.file);
  if (part.nbytes != shape.numel() * size_of(part.dtype) || part.offset < 0 ||
      part.offset + part.nbytes > mapped->size())
    fail(ErrorKind::weights, part.file, ": a tensor of ", part.nbytes, " bytes at ", part.offset,
         " does not fit the file or its shape ", shape.str());
  return Tensor{device_.map(mapped, part.offset, part.nbytes), 0, part.dtype, shape};
}

Tensor WeightLoader::matrix_part(const BoundTensor& t, size_t i, int64_t out, int64_t width) {
  const StoredPart& first = t.parts[i];
  const int64_t row = width * size_of(first.dtype);
  if (t.stack == 0 && t.rows.empty()) return map(first, {out, width});
  if (t.stack == 0 && t.rows.size() == 1) {  // rows that follow each other stay where they are
    const auto [begin, count] = t.rows[0];
    require(count == out && (begin + count) * row <= first.nbytes, t.role, ": rows outside the stored tensor");
    return map({first.file, first.offset + begin * row, count * row, first.dtype}, {out, width});
  }
  const Tensor to = device_.tensor(first.dtype, {out, width});
  uint8_t* at = host_data<uint8_t>(to);
  uint8_t* const end = at + to.nbytes();
  const size_t per_module = parts_of(t);
  const auto append = [&](const StoredPart& part, int64_t begin, int64_t bytes) {
    const std::shared_ptr<MappedFile> mapped = file(part.file);
    require(begin >= 0 && begin + bytes <= part.nbytes && at + bytes <= end, t.role, ": rows outside the tensor");
    if (part.dtype != first.dtype || part.offset < 0 || part.offset + part.nbytes > mapped->size())
      fail(ErrorKind::weights, part.file, ": '", t.role, "' does not fit the file, or its parts differ in dtype");
    std::memcpy(at, mapped->data() + part.offset + begin, static_cast<size_t>(bytes));
    at += bytes;
  };
  for (size_t m = 0; m < static_cast<size_t>(std::max<int64_t>(1, t.stack)); ++m) {
    const StoredPart& part = t.parts[m * per_module + i];
    if (t.rows.empty()) append(part, 0, part.nbytes);
    for (const auto& [begin, count] : t.rows) append(part, begin * row, count * row);
  }
  require(at == end, t.role, ": fewer rows than the model's spec has");
  return to;
}

Weight WeightLoader::matrix(const std::string& role, int64_t out, int64_t in) {
  const BoundTensor& t = find(role, {out, in});
  require(t.parts.size() == static_cast<size_t>(std::max<int64_t>(1, t.stack)) * parts_of(t), role, ": ",
          t.parts.size(), " parts");
  Weight w{out, in, t.bits, t.group, {}, {}, {}, t.format};
  if (!w.quantised()) {
    w.data = matrix_part(t, 0, out, in);
  } else {
    require(t.group > 0, role, ": no group size");
    w.data = matrix_part(t, 0, out, in * t.bits / 32);
    w.scales = matrix_part(t, 1, out, in / t.group);
    if (parts_of(t) == 3) w.biases = matrix_part(t, 2, out, in / t.group);
  }
  check_weight(w, role);
  return w;
}

Tensor WeightLoader::floats(const BoundTensor& t, Shape shape) {
  require(t.parts.size() == 1 && t.rows.empty() && t.stack == 0, t.role, ": no plain tensor");
  const StoredPart& part = t.parts[0];
  const int64_t n = shape.numel();
  const std::shared_ptr<MappedFile> mapped = file(part.file);
  if (part.nbytes != n * size_of(part.dtype) || part.offset < 0 || part.offset + part.nbytes > mapped->size())
    fail(ErrorKind::weights, part.file, ": '", t.role, "' does not fit the file");
  const Tensor out = device_.tensor(DType::f32, shape);
  float* values = host_data<float>(out);
  const uint8_t* stored = mapped->data() + part.offset;
  for (int64_t i = 0; i < n; ++i) {
    // It may start at any byte: copy the element before it is read.
    uint32_t element = 0;
    std::memcpy(&element, stored + i * size_of(part.dtype), static_cast<size_t>(size_of(part.dtype)));
    values[i] = (load_float(&element, part.dtype, 0) + (t.plus_one ? 1.0f : 0.0f)) * t.factor;
  }
  return out;
}

Tensor WeightLoader::vector(const std::string& role, int64_t n) { return floats(find(role, {n}), {n}); }

Tensor WeightLoader::table(const std::string& role, int64_t rows, int64_t n) {
  return floats(find(role, {rows, n}), {rows, n});
}

Tensor WeightLoader::ones(int64_t n) {
  const Tensor out = device_.tensor(DType::f32, {n});
  std::fill_n(host_data<float>(out), n, 1.0f);
  return out;
}

}  // namespace saragossa
