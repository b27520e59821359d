#pragma once
// Tensors as src/saragossa/weights/bind.py found them, and their way onto a device.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/mapped_file.h"
#include "device.h"
#include "quant/weight.h"

namespace saragossa {

/// A byte range of a file that holds one stored tensor.
struct StoredPart {
  std::string file;
  int64_t offset = 0;
  int64_t nbytes = 0;
  DType dtype = DType::f32;
};

/// One tensor of the model by role; parts: weight, or weight, scales and, where its format has them, biases.
struct BoundTensor {
  std::string role;
  std::vector<int64_t> shape;      // as unquantised
  int bits = 0;                    // 0: dense
  Format format = Format::affine;  // unless dense
  int group = 0;
  bool plus_one = false;  // stored as w, used as 1 + w
  std::vector<StoredPart> parts;
};

/// Hands out weights by role. Matrices stay in the mapped file; vectors are copied as f32.
class WeightLoader {
 public:
  WeightLoader(Device& device, std::vector<BoundTensor> tensors);

  /// Error(weights) that names the role when it is missing or has another shape.
  Weight matrix(const std::string& role, int64_t out, int64_t in);
  Tensor vector(const std::string& role, int64_t n);

 private:
  const BoundTensor& find(const std::string& role, const std::vector<int64_t>& shape) const;
  std::shared_ptr<MappedFile> file(const std::string& path);
  Tensor map(const StoredPart& part, Shape shape);

  Device& device_;
  std::map<std::string, BoundTensor> tensors_;
  std::map<std::string, std::shared_ptr<MappedFile>> files_;
};

}  // namespace saragossa
