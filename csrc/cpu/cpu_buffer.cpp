#include "cpu/cpu_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace saragossa::cpu {
namespace {

constexpr int64_t kPage = 4096;

}  // namespace

CpuBuffer::CpuBuffer(int64_t bytes, bool sparse) : Buffer(nullptr, bytes) {
  require(bytes >= 0, "allocate: ", bytes, " bytes");
  mapped_ = std::max(kPage, (bytes + kPage - 1) / kPage * kPage);
  // Most of a sparse buffer is never touched: it is not held against what the system may promise.
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (sparse ? MAP_NORESERVE : 0);
  void* at = ::mmap(nullptr, static_cast<size_t>(mapped_), PROT_READ | PROT_WRITE, flags, -1, 0);
  if (at == MAP_FAILED) fail(ErrorKind::device, "out of memory: ", bytes, " bytes: ", std::strerror(errno));
#ifdef MADV_HUGEPAGE
  constexpr int64_t kHuge = int64_t{1} << 21;
  if (mapped_ >= 8 * kHuge) ::madvise(at, static_cast<size_t>(mapped_), sparse ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
#endif
  bytes_ = static_cast<uint8_t*>(at);
}

CpuBuffer::CpuBuffer(std::shared_ptr<MappedFile> file, int64_t offset, int64_t bytes)
    : Buffer(const_cast<uint8_t*>(file->data()) + offset, bytes), file_(std::move(file)) {
  require(offset >= 0 && bytes >= 0 && offset <= file_->size() && bytes <= file_->size() - offset, "map: bytes ",
          offset, "+", bytes, " of ", file_->path(), ", which has ", file_->size());
}

CpuBuffer::~CpuBuffer() {
  if (mapped_ > 0) ::munmap(bytes_, static_cast<size_t>(mapped_));
}

void CpuBuffer::release_pages() {
#ifdef __linux__
  ::madvise(bytes_, static_cast<size_t>(mapped_), MADV_DONTNEED);
#else
  ::madvise(bytes_, static_cast<size_t>(mapped_), MADV_FREE);
#endif
}

Tensor Arena::take(DType dtype, Shape shape) {
  const int64_t bytes = (shape.numel() * size_of(dtype) + 63) / 64 * 64;
  while (chunk_ < chunks_.size() && used_ + bytes > chunks_[chunk_]->size()) ++chunk_, used_ = 0;
  if (chunk_ == chunks_.size()) chunks_.push_back(std::make_shared<CpuBuffer>(std::max(kChunk, bytes)));
  Tensor out{chunks_[chunk_], used_, dtype, shape};
  used_ += bytes;
  if (poison_) std::memset(out.buffer->raw() + out.offset, 0xff, static_cast<size_t>(bytes));  // NaN
  return out;
}

void Arena::reset() {
  if (chunk_ > 0 || used_ > kKept) {
    chunks_.resize(1);
    chunks_[0]->release_pages();
  }
  chunk_ = 0;
  used_ = 0;
}

}  // namespace saragossa::cpu
