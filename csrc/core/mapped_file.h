#pragma once
// A file mapped read-only, shared by the tensors bound to it.

#include <cstdint>
#include <string>

namespace saragossa {

class MappedFile {
 public:
  static constexpr int64_t kAlignment = 16384;  // a page of Apple silicon: a GPU buffer over the file needs it

  /// Error(weights) that names the path when it cannot be opened or mapped.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// Starts at a multiple of kAlignment.
  const uint8_t* data() const { return data_; }
  int64_t size() const { return size_; }
  /// Bytes of address space from data() that belong to the file: size() up to a multiple of kAlignment.
  int64_t mapped_size() const { return (size_ + kAlignment - 1) / kAlignment * kAlignment; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace saragossa
