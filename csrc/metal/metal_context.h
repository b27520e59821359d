#pragma once
// What the Metal device's encoders share: queue, memory, kernels, and the order between submissions.

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/switches.h"
#include "encoder.h"
#include "metal/kernels.h"
#include "metal/metal_buffer.h"
#include "metal/policy.h"

namespace saragossa::metal {

struct Context {
  Context(NS::SharedPtr<MTL::Device> device, const Switches& switches);

  NS::SharedPtr<MTL::Device> device;
  Switches switches;
  Capabilities gpu;
  Tuning tuning;
  NS::SharedPtr<MTL::CommandQueue> queue;
  // Buffers are untracked: encoders of the queue follow each other through this fence.
  NS::SharedPtr<MTL::Fence> fence;
  std::atomic<bool> fenced{false};  // an encoder has updated it
  Memory memory;
  Kernels kernels;

  /// Until what the queue was given so far is done.
  void wait_idle();

  void add_time(const char* kernel, double seconds);
  std::vector<KernelTime> times() const;

  std::unique_ptr<Arena> take_arena();
  void give_arena(std::unique_ptr<Arena> arena);

 private:
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::map<std::string, KernelTime> times_;
};

/// One command buffer under construction, with one encoder at a time and its scratch. A long prefill takes several, so
/// that none holds the GPU for more than tens of milliseconds.
struct Step {
  explicit Step(Context& context);
  /// Ends the encoder and commits.
  void commit(Context& context);
  /// Commits what was encoded so far and goes on in another command buffer.
  void cut(Context& context);
  /// Error(device) that says what the GPU reported; nothing when all parts completed.
  void check() const;

  NS::SharedPtr<MTL::CommandBuffer> buffer;
  std::vector<NS::SharedPtr<MTL::CommandBuffer>> earlier;  // committed parts of a long step
  NS::SharedPtr<MTL::ComputeCommandEncoder> encoder;
  std::unique_ptr<Arena> arena;

 private:
  void open(Context& context);
};

/// A committed step. Holds every buffer that it touches until the GPU is done.
class MetalSubmission final : public Submission::Impl {
 public:
  MetalSubmission(std::shared_ptr<Context> context, std::unique_ptr<Step> step, OpRecords records);
  ~MetalSubmission() override;
  void wait() override;

 private:
  void finish();

  std::shared_ptr<Context> context_;
  std::unique_ptr<Step> step_;
  OpRecords records_;
  const int forks_at_commit_;
  bool finished_ = false;
  struct Signal;
  std::shared_ptr<Signal> signal_;
};

}  // namespace saragossa::metal
