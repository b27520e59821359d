#pragma once
// A file mapped read-only, shared by the tensors bound to it.

#include <cstdint>
#include <string>

namespace saragossa {

class MappedFile {
 public:
  /// Error(weights) that names the path when it cannot be opened or mapped.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const uint8_t* data() const { return data_; }
  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }
  /// Asks the system to read the pages ahead.
  void will_need() const;

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace saragossa
