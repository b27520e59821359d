#include "weights/bound_tensor.h"

#include <utility>

namespace saragossa {

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

Weight WeightLoader::matrix(const std::string& role, int64_t out, int64_t in) {
  const BoundTensor& t = find(role, {out, in});
  const bool biased = t.bits && row_of(t.format).has_biases;
  require(t.parts.size() == (t.bits ? biased ? 3u : 2u : 1u), role, ": ", t.parts.size(), " parts");
  Weight w{out, in, t.bits, t.group, {}, {}, {}, t.format};
  if (!w.quantised()) {
    w.data = map(t.parts[0], {out, in});
  } else {
    require(t.group > 0, role, ": no group size");
    w.data = map(t.parts[0], {out, in * t.bits / 32});
    w.scales = map(t.parts[1], {out, in / t.group});
    if (biased) w.biases = map(t.parts[2], {out, in / t.group});
  }
  check_weight(w, role);
  return w;
}

Tensor WeightLoader::vector(const std::string& role, int64_t n) {
  const BoundTensor& t = find(role, {n});
  require(t.parts.size() == 1, role, ": ", t.parts.size(), " parts");
  const StoredPart& part = t.parts[0];
  const std::shared_ptr<MappedFile> mapped = file(part.file);
  if (part.nbytes != n * size_of(part.dtype) || part.offset < 0 || part.offset + part.nbytes > mapped->size())
    fail(ErrorKind::weights, part.file, ": '", role, "' does not fit the file");
  const Tensor out = device_.tensor(DType::f32, {n});
  float* values = host_data<float>(out);
  const uint8_t* stored = mapped->data() + part.offset;
  for (int64_t i = 0; i < n; ++i) {
    // A vector may start at any byte: copy the element before it is read.
    uint32_t element = 0;
    std::memcpy(&element, stored + i * size_of(part.dtype), static_cast<size_t>(size_of(part.dtype)));
    values[i] = load_float(&element, part.dtype, 0) + (t.plus_one ? 1.0f : 0.0f);
  }
  return out;
}

}  // namespace saragossa
