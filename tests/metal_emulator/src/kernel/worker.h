#pragma once
// One OS thread that runs threadgroups, one after another.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "access.h"
#include "execute.h"
#include "fibre.h"
#include "msl/emulator/abi.h"
#include "settings.h"

namespace emulator {

enum class LaneState : uint8_t { not_started, runnable, in_simdgroup_operation, at_threadgroup_barrier, done };

/// One GPU thread.
struct Lane {
  EmulatorThread thread;
  LaneState state = LaneState::not_started;
  Fibre* fibre = nullptr;
  // What it waits for.
  EmulatorLaneOperation operation = nullptr;  // null: a barrier
  const void* in = nullptr;
  void* out = nullptr;
  const char* name = nullptr;
  EmulatorSite site{};
  unsigned barrier_flags = 0;
};

/// Lanes as bits.
struct Simdgroup {
  uint32_t live = 0;     // not yet returned
  uint32_t ready = 0;    // may run
  uint32_t arrived = 0;  // wait for an operation
  // simdgroup_barriers so far, by the memory they order.
  uint32_t threadgroup_epoch = 0, device_epoch = 0;
};

class Worker {
 public:
  explicit Worker(uint64_t seed);
  ~Worker();

  void begin_dispatch(const Dispatch& dispatch);
  void run_group(const std::array<uint32_t, 3>& position, const std::array<uint32_t, 3>& groups);
  void end_dispatch();

  // Called on a lane's fibre.
  void threadgroup_barrier(unsigned flags, EmulatorSite site);
  void simdgroup_operation(EmulatorLaneOperation operation, const void* in, void* out, const char* name,
                           unsigned barrier_flags, EmulatorSite site);
  void* threadgroup_variable(const void* declaration, size_t size, size_t alignment, const char* name);
  /// Ends the running lane in the middle of its kernel: its next access would be wild. Does not return.
  [[noreturn]] void abandon_lane();

  /// A finding about this dispatch; none where a lane was abandoned, since it may be a consequence.
  void found(const char* kind, const std::string& text) const;
  /// "kernel 'rms_norm' (layer 3)", for messages.
  std::string context() const;

  Lane* current = nullptr;
  Access access;  // what the running dispatch may touch, and what it touched
  const StackArena& stacks() const { return stacks_; }
  uint32_t group_number() const { return group_number_; }
  const Dispatch& dispatch() const { return *dispatch_; }
  const Simdgroup& simdgroup_of(const Lane& lane) const { return simdgroups_[lane.thread.simdgroup]; }
  uint32_t threadgroup_epoch() const { return threadgroup_epoch_; }
  uint32_t device_epoch() const { return device_epoch_; }

 private:
  static void fibre_main();
  void set_up_group(const std::array<uint32_t, 3>& position, const std::array<uint32_t, 3>& groups);
  void set_up_lanes();
  Lane* pick();
  Lane* pick_lane(uint32_t simdgroup, uint32_t lane);
  Fibre* take_fibre();
  void wait();  // the running lane waits; another goes on
  void go_to(Lane* next, void** save);
  void finish(Lane& lane);  // a lane returned
  void run_operation(uint32_t simdgroup, bool stuck);
  void pass_threadgroup_barrier(unsigned flags, EmulatorSite site);
  bool resolve_deadlock();

  const Dispatch* dispatch_ = nullptr;
  Kernel::Entry entry_ = nullptr;
  Order order_ = Order::in_order;
  EmulatorGroup group_{};
  uint32_t group_number_ = 0;
  std::array<Lane, 1024> lanes_;
  std::vector<Simdgroup> simdgroups_;
  uint32_t turn_ = 0;  // simdgroup that runs
  uint32_t live_ = 0, at_barrier_ = 0;
  uint32_t threadgroup_epoch_ = 0, device_epoch_ = 0;
  bool abandoned_ = false;  // a lane was ended: what follows from it is no finding

  StackArena stacks_;
  std::vector<std::unique_ptr<Fibre>> fibres_;
  std::vector<Fibre*> free_fibres_;
  void* main_stack_ = nullptr;

  uint64_t random_;
  uint64_t operations_ = 0, barriers_ = 0;
};

/// The worker of this OS thread while it runs a dispatch; nullptr otherwise.
Worker* current_worker();
/// The worker of this OS thread, made at first use.
Worker& this_thread_worker();

/// "file.metal:12:7".
std::string place(EmulatorSite site);

}  // namespace emulator
