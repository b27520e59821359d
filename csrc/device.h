#pragma once
// Device, Buffer, Submission: what a backend gives. The ops are in encoder.h.
//
//   auto enc = device.begin();
//   enc->rms_norm(...); enc->linear(...);
//   auto done = enc->submit();     // nothing ran before this
//   done.wait();                   // only now may the host read what was written

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/switches.h"
#include "core/tensor.h"

namespace saragossa {

class CommandEncoder;
class MappedFile;

/// Bytes that the device reads and writes. Memory is shared with the host.
class Buffer {
 public:
  virtual ~Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  int64_t size() const { return size_; }

  /// Host access. Throws where a submission that was not waited for still writes these bytes.
  uint8_t* host();
  const uint8_t* host() const { return const_cast<Buffer*>(this)->host(); }

  /// For backends: the bytes without the check.
  uint8_t* raw() const { return bytes_; }
  void begin_write() { ++pending_writes_; }
  void end_write() { --pending_writes_; }

 protected:
  Buffer(uint8_t* bytes, int64_t size) : bytes_(bytes), size_(size) {}
  uint8_t* bytes_;
  int64_t size_;

 private:
  std::atomic<int> pending_writes_{0};
};

/// Work handed to the device. Destroying it waits.
class Submission {
 public:
  class Impl {
   public:
    virtual ~Impl() = default;
    virtual void wait() = 0;  // throws what went wrong on the device
  };
  Submission() = default;
  explicit Submission(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  void wait() const {
    if (impl_) impl_->wait();
  }

 private:
  std::shared_ptr<Impl> impl_;
};

/// In bytes; 0 where the device does not know.
struct DeviceMemory {
  int64_t footprint = 0;    // what the system charges this process with
  int64_t allocated = 0;    // of the device's own buffers, mapped files among them
  int64_t recommended = 0;  // the most that the system advises to use
};

/// Of a model, the largest of each: what a device's kernels may bound.
struct ModelSizes {
  int64_t hidden = 0, vocab = 0;
  int64_t delta_key_dim = 0;                   // of gated delta nets
  int64_t experts = 0, experts_per_token = 0;  // of a layer
};

struct KernelTime {
  std::string kernel;
  int64_t runs = 0;
  double seconds = 0.0;
};

class Device {
 public:
  explicit Device(Switches switches) : switches_(std::move(switches)) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual std::string name() const = 0;         // "cpu", "metal"
  virtual std::string description() const = 0;  // instruction set, threads; or the GPU
  const Switches& switches() const { return switches_; }
  /// Whether submit() returns before the work is done: then the next step can be encoded meanwhile.
  virtual bool asynchronous() const { return false; }

  /// Zeroed memory, aligned to 64 bytes at least. Large ones commit pages only when touched; a sparse one
  /// is touched here and there (a cache's blocks), so its pages should be small.
  virtual std::shared_ptr<Buffer> allocate(int64_t bytes, bool sparse = false) = 0;

  /// `bytes` of a mapped file from `offset`, without a copy where the backend's alignment allows.
  virtual std::shared_ptr<Buffer> map(std::shared_ptr<MappedFile> file, int64_t offset, int64_t bytes) = 0;

  virtual std::unique_ptr<CommandEncoder> begin() = 0;

  virtual DeviceMemory memory() const { return {}; }
  /// Whether untouched pages of a buffer cost nothing. A GPU wires a whole buffer when it first uses it.
  virtual bool lazy_memory() const { return true; }
  /// Error(device) that names what the kernels cannot do. Asked before memory is spent on a model.
  virtual void check(const ModelSizes&) const {}
  /// Until everything that was submitted is done.
  virtual void wait_idle() {}
  /// GPU time by kernel so far, where each dispatch runs alone (switch `metal_resident` off); else nothing.
  virtual std::vector<KernelTime> kernel_times() const { return {}; }

  Tensor tensor(DType dtype, Shape shape, bool sparse = false);

  /// What a long submission calls now and then on the submitting thread; what it throws ends the submission.
  void set_interrupt(std::function<void()> check) { interrupt_ = std::move(check); }
  /// For backends that run ops on the submitting thread: calls the check when the last one is 20 ms ago.
  void poll_interrupt();

 private:
  Switches switches_;
  std::function<void()> interrupt_;
  std::chrono::steady_clock::time_point last_poll_{};
};

/// Host pointer to a tensor's first element, checked as Buffer::host is.
template <class T>
T* host_data(const Tensor& t) {
  return reinterpret_cast<T*>(t.buffer->host() + t.offset);
}

/// The same without the check, for backends while they execute.
template <class T>
T* raw_data(const Tensor& t) {
  return reinterpret_cast<T*>(t.buffer->raw() + t.offset);
}

/// i32 [n] with these values.
Tensor upload(Device& device, std::span<const int32_t> values);

/// "cpu", "metal". Metal raises Error(device) on a machine or in a build without it.
std::unique_ptr<Device> make_device(const std::string& name, const Switches& switches);

}  // namespace saragossa
