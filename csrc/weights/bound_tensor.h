#pragma once
// Tensors as src/saragossa/weights/bind.py found them, and their way onto a device.

#include <map>
#include <memory>
#include <string>
#include <utility>
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
  bool plus_one = false;                          // stored as w, used as 1 + w
  std::vector<StoredPart> parts;                  // of a stack those of one module after another
  std::vector<std::pair<int64_t, int64_t>> rows;  // (start, count) of the stored rows that make it up; empty: all
  int64_t stack = 0;                              // modules whose rows follow each other; 0: one
  float factor = 1.0f;                            // multiplies a vector
};

/// Hands out weights by role. Matrices stay in the mapped file, but for stacks and rows that do not follow each other,
/// which are copied as they are stored; vectors and tables are copied as f32.
class WeightLoader {
 public:
  WeightLoader(Device& device, std::vector<BoundTensor> tensors);

  /// Error(weights) that names the role when it is missing or has another shape.
  Weight matrix(const std::string& role, int64_t out, int64_t in);
  Tensor vector(const std::string& role, int64_t n);
  Tensor table(const std::string& role, int64_t rows, int64_t n);
  /// Weights of a norm that has none.
  Tensor ones(int64_t n);

 private:
  const BoundTensor& find(const std::string& role, const std::vector<int64_t>& shape) const;
  std::shared_ptr<MappedFile> file(const std::string& path);
  Tensor map(const StoredPart& part, Shape shape);
  /// Part i of every module of a matrix, [rows, width] of the part's dtype.
  Tensor matrix_part(const BoundTensor& t, size_t i, int64_t out, int64_t width);
  Tensor floats(const BoundTensor& t, Shape shape);

  Device& device_;
  std::map<std::string, BoundTensor> tensors_;
  std::map<std::string, std::shared_ptr<MappedFile>> files_;
};

}  // namespace saragossa
