#pragma once
// Memory that the GPU and the host share: a buffer of its own, or a window of a mapped file.

#include <memory>
#include <mutex>
#include <vector>

#include "core/mapped_file.h"
#include "device.h"
#include "metal/metal_cpp.h"

namespace saragossa::metal {

/// Keeps allocations wired for the GPU where the system can (macOS 15): no step pays for it again.
class Residency {
 public:
  Residency(MTL::Device* device, MTL::CommandQueue* queue, bool supported);
  void add(MTL::Buffer* buffer);
  void remove(MTL::Buffer* buffer);

 private:
  std::mutex mutex_;
  NS::SharedPtr<MTL::ResidencySet> set_;  // null: not supported
};

/// An MTL::Buffer that is resident as long as it lives; `file`: what its bytes belong to.
class Allocation {
 public:
  Allocation(NS::SharedPtr<MTL::Buffer> buffer, std::shared_ptr<Residency> residency,
             std::shared_ptr<MappedFile> file = {});
  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  MTL::Buffer* get() const { return buffer_.get(); }
  uint8_t* bytes() const { return static_cast<uint8_t*>(buffer_->contents()); }

 private:
  std::shared_ptr<MappedFile> file_;  // goes after the buffer
  NS::SharedPtr<MTL::Buffer> buffer_;
  std::shared_ptr<Residency> residency_;
};

class MetalBuffer final : public Buffer {
 public:
  /// `bytes` of the allocation from `offset`.
  MetalBuffer(std::shared_ptr<Allocation> allocation, int64_t offset, int64_t bytes)
      : Buffer(allocation->bytes() + offset, bytes), allocation_(std::move(allocation)), offset_(offset) {}

  MTL::Buffer* mtl() const { return allocation_->get(); }
  int64_t offset() const { return offset_; }

 private:
  std::shared_ptr<Allocation> allocation_;
  int64_t offset_;
};

/// Makes buffers. Metal does not track their hazards: barriers come from the encoder's records.
class Memory {
 public:
  Memory(MTL::Device* device, MTL::CommandQueue* queue, bool residency_sets, int64_t max_buffer);

  /// Zeroed, page-aligned. Error(device) that names the size when there is no memory.
  std::shared_ptr<MetalBuffer> allocate(int64_t bytes);
  /// The file's own pages where `offset` is a multiple of kMapAlignment, else a copy.
  std::shared_ptr<MetalBuffer> map(const std::shared_ptr<MappedFile>& file, int64_t offset, int64_t bytes);

  /// Bytes of the largest buffer.
  int64_t max_buffer() const { return max_buffer_; }

  /// Kernels load weights eight bytes at a time.
  static constexpr int64_t kMapAlignment = 8;

 private:
  /// A no-copy buffer over a part of a file that several tensors share.
  struct Window {
    const MappedFile* file = nullptr;
    int64_t begin = 0, end = 0;
    std::weak_ptr<Allocation> allocation;
  };
  /// Null where the system refuses.
  std::shared_ptr<Allocation> window(const std::shared_ptr<MappedFile>& file, int64_t offset, int64_t bytes,
                                     int64_t* begin);

  MTL::Device* device_;
  int64_t max_buffer_;
  std::shared_ptr<Residency> residency_;
  std::mutex mutex_;
  std::vector<Window> windows_;
};

/// Scratch of one submission, filled from the start; see cpu::Arena.
class Arena {
 public:
  Arena(Memory& memory, bool poison) : memory_(memory), poison_(poison) {}
  /// 64-byte aligned.
  Tensor take(DType dtype, Shape shape);
  /// For the next submission, which finds what this one took in one buffer: steps that need the same make none. What
  /// is much more than many submissions in turn have taken goes back to the system.
  void reset();

 private:
  static constexpr int64_t kChunk = int64_t{1} << 24;
  static constexpr int kPatience = 64;  // submissions
  Memory& memory_;
  bool poison_;
  std::vector<std::shared_ptr<MetalBuffer>> chunks_;
  size_t chunk_ = 0;
  int64_t used_ = 0;   // of chunk_
  int64_t first_ = 0;  // bytes of the first chunk, when it is made
  int small_ = 0;      // submissions in turn that took a fraction of what is kept
};

}  // namespace saragossa::metal
