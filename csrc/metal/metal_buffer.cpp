#include "metal/metal_buffer.h"

#include <algorithm>
#include <cstring>

namespace saragossa::metal {
namespace {

constexpr MTL::ResourceOptions kShared = MTL::ResourceStorageModeShared | MTL::ResourceHazardTrackingModeUntracked;
constexpr int64_t kPage = MappedFile::kAlignment;

}  // namespace

Residency::Residency(MTL::Device* device, MTL::CommandQueue* queue, bool supported) {
  if (!supported) return;
  const Pool pool;
  const auto descriptor = NS::TransferPtr(MTL::ResidencySetDescriptor::alloc()->init());
  NS::Error* error = nullptr;
  set_ = NS::TransferPtr(device->newResidencySet(descriptor.get(), &error));
  if (!set_) fail(ErrorKind::device, "metal: no residency set: ", text_of(error));
  queue->addResidencySet(set_.get());
}

void Residency::add(MTL::Buffer* buffer) {
  if (!set_) return;
  const std::lock_guard lock(mutex_);
  set_->addAllocation(buffer);
  set_->commit();
  set_->requestResidency();
}

void Residency::remove(MTL::Buffer* buffer) {
  if (!set_) return;
  const std::lock_guard lock(mutex_);
  set_->removeAllocation(buffer);
  set_->commit();
}

Allocation::Allocation(NS::SharedPtr<MTL::Buffer> buffer, std::shared_ptr<Residency> residency,
                       std::shared_ptr<MappedFile> file)
    : file_(std::move(file)), buffer_(std::move(buffer)), residency_(std::move(residency)) {
  residency_->add(buffer_.get());
}

Allocation::~Allocation() { residency_->remove(buffer_.get()); }

Memory::Memory(MTL::Device* device, MTL::CommandQueue* queue, bool residency_sets, int64_t max_buffer)
    : device_(device),
      max_buffer_(max_buffer / kPage * kPage),
      residency_(std::make_shared<Residency>(device, queue, residency_sets)) {}

std::shared_ptr<MetalBuffer> Memory::allocate(int64_t bytes) {
  require(bytes >= 0, "allocate: ", bytes, " bytes");
  const Pool pool;
  auto buffer = NS::TransferPtr(device_->newBuffer(static_cast<NS::UInteger>(std::max<int64_t>(bytes, 16)), kShared));
  if (!buffer)
    fail(ErrorKind::device, "metal: out of memory: a buffer of ", bytes, " bytes; a buffer has at most ", max_buffer_);
  return std::make_shared<MetalBuffer>(std::make_shared<Allocation>(std::move(buffer), residency_), 0, bytes);
}

std::shared_ptr<MetalBuffer> Memory::map(const std::shared_ptr<MappedFile>& file, int64_t offset, int64_t bytes) {
  require(offset >= 0 && bytes >= 0 && offset <= file->size() && bytes <= file->size() - offset, "map: bytes ", offset,
          "+", bytes, " of ", file->path(), ", which has ", file->size());
  if (offset % kMapAlignment == 0 && bytes > 0) {
    int64_t begin = 0;
    if (auto shared = window(file, offset, bytes, &begin))
      return std::make_shared<MetalBuffer>(std::move(shared), offset - begin, bytes);
  }
  auto copy = allocate(bytes);
  std::memcpy(copy->raw(), file->data() + offset, static_cast<size_t>(bytes));
  return copy;
}

std::shared_ptr<Allocation> Memory::window(const std::shared_ptr<MappedFile>& file, int64_t offset, int64_t bytes,
                                           int64_t* begin) {
  const std::lock_guard lock(mutex_);
  std::erase_if(windows_, [](const Window& w) { return w.allocation.expired(); });
  for (const Window& w : windows_) {
    if (w.file != file.get() || offset < w.begin || offset + bytes > w.end) continue;
    *begin = w.begin;
    return w.allocation.lock();
  }
  // The whole file where a buffer may be as large, else what lies from here on.
  const bool whole = file->mapped_size() <= max_buffer_;
  *begin = whole ? 0 : offset / kPage * kPage;
  const int64_t end = std::min(file->mapped_size(), *begin + max_buffer_);
  if (offset + bytes > end) return {};
  const Pool pool;
  auto buffer = NS::TransferPtr(device_->newBuffer(const_cast<uint8_t*>(file->data()) + *begin,
                                                   static_cast<NS::UInteger>(end - *begin), kShared, nullptr));
  if (!buffer) return {};
  auto allocation = std::make_shared<Allocation>(std::move(buffer), residency_, file);
  windows_.push_back({file.get(), *begin, end, allocation});
  return allocation;
}

Tensor Arena::take(DType dtype, Shape shape) {
  const int64_t bytes = (shape.numel() * size_of(dtype) + 63) / 64 * 64;
  while (chunk_ < chunks_.size() && used_ + bytes > chunks_[chunk_]->size()) ++chunk_, used_ = 0;
  if (chunk_ == chunks_.size()) {
    const int64_t least = chunks_.empty() ? std::max(kChunk, first_) : kChunk;
    chunks_.push_back(memory_.allocate(std::max(least, bytes)));
  }
  Tensor out{chunks_[chunk_], used_, dtype, shape};
  used_ += bytes;
  if (poison_) std::memset(out.buffer->raw() + out.offset, 0xff, static_cast<size_t>(bytes));  // NaN
  return out;
}

void Arena::reset() {
  int64_t kept = 0, taken = used_;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    kept += chunks_[i]->size();
    if (i < chunk_) taken += chunks_[i]->size();
  }
  small_ = kept > kChunk && taken < kept / 4 ? small_ + 1 : 0;
  const bool shrinks = small_ == kPatience;
  // Made when it is asked for: here nothing may fail.
  if (shrinks || (chunks_.size() > 1 && kept <= memory_.max_buffer())) {
    chunks_.clear();
    first_ = shrinks ? taken : kept;
    small_ = 0;
  }
  chunk_ = 0;
  used_ = 0;
}

}  // namespace saragossa::metal
