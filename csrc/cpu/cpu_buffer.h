#pragma once
// Memory of the CPU device: anonymous pages, or a window of a mapped file.

#include <memory>
#include <utility>
#include <vector>

#include "core/mapped_file.h"
#include "device.h"

namespace saragossa::cpu {

class CpuBuffer final : public Buffer {
 public:
  /// Zeroed pages, committed when they are touched.
  explicit CpuBuffer(int64_t bytes, bool sparse = false);
  /// The file's own bytes; writing to them is a crash.
  CpuBuffer(std::shared_ptr<MappedFile> file, int64_t offset, int64_t bytes);
  ~CpuBuffer() override;

  /// True the first time that it is asked with this number: for lists without duplicates.
  bool mark(uint64_t number) { return std::exchange(mark_, number) != number; }
  /// Gives pages back to the system; they read as zero afterwards.
  void release_pages();

 private:
  std::shared_ptr<MappedFile> file_;
  int64_t mapped_ = 0;
  uint64_t mark_ = 0;
};

/// Scratch of one submission: chunks that are filled from the start.
class Arena {
 public:
  explicit Arena(bool poison) : poison_(poison) {}
  /// 64-byte aligned.
  Tensor take(DType dtype, Shape shape);
  /// For the next submission. What exceeds kKept bytes goes back to the system.
  void reset();

 private:
  static constexpr int64_t kChunk = int64_t{1} << 26;
  static constexpr int64_t kKept = int64_t{1} << 25;
  bool poison_;
  std::vector<std::shared_ptr<CpuBuffer>> chunks_;
  size_t chunk_ = 0;
  int64_t used_ = 0;
};

}  // namespace saragossa::cpu
