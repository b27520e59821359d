#include "worker.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "counters.h"
#include "report.h"

namespace emulator {
namespace {

thread_local Worker* running __attribute__((tls_model("initial-exec"))) = nullptr;

int lowest(uint32_t bits) { return __builtin_ctz(bits); }
int highest(uint32_t bits) { return 31 - __builtin_clz(bits); }

uint64_t step(uint64_t& state) {  // xorshift
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state >> 20;
}

}  // namespace

Worker::Worker(uint64_t seed) : random_(seed * 0x9E3779B97F4A7C15ull + 12345) {}
Worker::~Worker() = default;

// Not inlined: the address of a thread-local variable must be found anew after a switch of stacks.
__attribute__((noinline)) Worker* current_worker() { return running; }

Worker& this_thread_worker() {
  static thread_local std::unique_ptr<Worker> own;
  if (!own) own = std::make_unique<Worker>(settings().seed);
  return *own;
}

std::string place(EmulatorSite site) {
  if (!site.file) return "?";
  const char* slash = strrchr(site.file, '/');
  return std::string(slash ? slash + 1 : site.file) + ":" + std::to_string(site.line) + ":" +
         std::to_string(site.column);
}

std::string Worker::context() const {
  const std::string kernel = "kernel '" + dispatch_->kernel->name + "'";
  return dispatch_->label.empty() ? kernel : kernel + " (" + dispatch_->label + ")";
}

// --- a dispatch and its threadgroups
// -----------------------------------------------------------------------------------

void Worker::begin_dispatch(const Dispatch& dispatch) {
  dispatch_ = &dispatch;
  order_ = settings().order;
  entry_ = dispatch.kernel->entry(settings().instrumented());
  random_ = (settings().seed + 1) * 0x9E3779B97F4A7C15ull ^ dispatch.sequence * 0xBF58476D1CE4E5B9ull;
  if (!random_) random_ = 1;
  access.begin_dispatch(dispatch, *this);
  for (int i = 0; i < max_bindings; i++) {
    group_.buffers[i] = dispatch.buffers[i].address;
    group_.threadgroup_buffers[i] = access.threadgroup_buffers[i];
  }
  running = this;
}

void Worker::end_dispatch() {
  running = nullptr;
  calls().simd_operations += std::exchange(operations_, 0);
  calls().threadgroup_barriers += std::exchange(barriers_, 0);
  auto& known = dispatch_->kernel->static_threadgroup_memory;
  known = std::max<uint32_t>(known, static_cast<uint32_t>(access.static_bytes()));
}

void Worker::set_up_group(const std::array<uint32_t, 3>& position, const std::array<uint32_t, 3>& groups) {
  group_.threads = 1;
  for (int i = 0; i < 3; i++) {
    const uint32_t full = dispatch_->threads_per_threadgroup[i], grid = dispatch_->grid[i];
    group_.position_in_grid[i] = position[i];
    group_.dispatch_threads_per_threadgroup[i] = full;
    group_.threads_per_threadgroup[i] = std::min(full, grid - position[i] * full);
    group_.threadgroups_per_grid[i] = groups[i];
    group_.threads_per_grid[i] = grid;
    group_.threads *= group_.threads_per_threadgroup[i];
  }
  group_.simdgroups = (group_.threads + 31) / 32;
  group_number_ = (position[2] * groups[1] + position[1]) * groups[0] + position[0];
  threadgroup_epoch_ = device_epoch_ = turn_ = at_barrier_ = 0;
  live_ = group_.threads;
  abandoned_ = false;
  access.begin_group();
}

void Worker::set_up_lanes() {
  simdgroups_.assign(group_.simdgroups, Simdgroup{});
  const unsigned* size = group_.threads_per_threadgroup;
  uint32_t index = 0;
  for (uint32_t z = 0; z < size[2]; z++)
    for (uint32_t y = 0; y < size[1]; y++)
      for (uint32_t x = 0; x < size[0]; x++, index++) {
        Lane& lane = lanes_[index];
        lane.state = LaneState::not_started;
        lane.fibre = nullptr;
        const uint32_t at[3] = {x, y, z};
        for (int i = 0; i < 3; i++) {
          lane.thread.position_in_threadgroup[i] = at[i];
          lane.thread.position_in_grid[i] =
              group_.position_in_grid[i] * group_.dispatch_threads_per_threadgroup[i] + at[i];
        }
        lane.thread.index = index;
        lane.thread.lane = index % 32;
        lane.thread.simdgroup = index / 32;
        lane.thread.group = &group_;
        Simdgroup& simdgroup = simdgroups_[index / 32];
        simdgroup.live |= 1u << index % 32;
        simdgroup.ready |= 1u << index % 32;
      }
}

void Worker::run_group(const std::array<uint32_t, 3>& position, const std::array<uint32_t, 3>& groups) {
  set_up_group(position, groups);
  set_up_lanes();
  // Fibres go from one to the next by themselves; control comes back here when none may run.
  while (live_) {
    Lane* next = pick();
    if (next)
      go_to(next, &main_stack_);
    else if (!resolve_deadlock())
      break;
  }
  current = nullptr;
}

// --- scheduling
// --------------------------------------------------------------------------------------------------------

Lane* Worker::pick_lane(uint32_t simdgroup, uint32_t lane) {
  simdgroups_[simdgroup].ready &= ~(1u << lane);
  turn_ = simdgroup;
  return &lanes_[simdgroup * 32 + lane];
}

/// The next lane that may run, by the order asked for; nullptr where all wait.
Lane* Worker::pick() {
  const auto count = static_cast<uint32_t>(simdgroups_.size());
  const uint32_t first = order_ == Order::random ? static_cast<uint32_t>(step(random_) % count) : turn_;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t s = order_ == Order::reversed ? count - 1 - i : (first + i) % count;
    uint32_t ready = simdgroups_[s].ready;
    if (!ready) continue;
    if (order_ == Order::in_order) return pick_lane(s, static_cast<uint32_t>(lowest(ready)));
    if (order_ == Order::reversed) return pick_lane(s, static_cast<uint32_t>(highest(ready)));
    for (uint64_t skip = step(random_) % static_cast<uint64_t>(__builtin_popcount(ready)); skip; skip--)
      ready &= ready - 1;
    return pick_lane(s, static_cast<uint32_t>(lowest(ready)));
  }
  return nullptr;
}

Fibre* Worker::take_fibre() {
  if (free_fibres_.empty()) {
    auto fibre = std::make_unique<Fibre>();
    fibre->stack = stacks_.take();
    fibre->number = fibres_.size();
    fibre->prepare(fibre_main);
    free_fibres_.push_back(fibre.get());
    fibres_.push_back(std::move(fibre));
  }
  Fibre* fibre = free_fibres_.back();
  free_fibres_.pop_back();
  return fibre;
}

void Worker::go_to(Lane* next, void** save) {
  if (next->state == LaneState::not_started) next->fibre = take_fibre();
  next->state = LaneState::runnable;
  current = next;
  emulator_switch_stack(save, next->fibre->stack_pointer);
}

/// The body of every fibre: runs one lane after another, as long as it finds fresh ones.
void Worker::fibre_main() {
  for (;;) {
    Worker* w = current_worker();
    Lane* lane = w->current;
    w->entry_(&lane->thread);
    w = current_worker();
    Fibre* self = lane->fibre;
    w->finish(*lane);
    Lane* next = w->pick();
    if (next && next->state == LaneState::not_started) {
      next->fibre = self;
      next->state = LaneState::runnable;
      w->current = next;
      continue;
    }
    w->free_fibres_.push_back(self);
    if (next)
      w->go_to(next, &self->stack_pointer);
    else
      emulator_switch_stack(&self->stack_pointer, w->main_stack_);
  }
}

void Worker::wait() {
  Lane* self = current;
  Lane* next = pick();
  if (next == self)
    self->state = LaneState::runnable;
  else if (next)
    go_to(next, &self->fibre->stack_pointer);
  else
    emulator_switch_stack(&self->fibre->stack_pointer, main_stack_);
}

void Worker::finish(Lane& lane) {
  lane.state = LaneState::done;
  const uint32_t s = lane.thread.simdgroup;
  simdgroups_[s].live &= ~(1u << lane.thread.lane);
  simdgroups_[s].arrived &= simdgroups_[s].live;  // an abandoned lane may have been in an operation
  live_--;
  if (simdgroups_[s].live && simdgroups_[s].arrived == simdgroups_[s].live) run_operation(s, false);
  if (live_ && at_barrier_ == live_) pass_threadgroup_barrier(3, {nullptr, 0, 0});
}

void Worker::abandon_lane() {
  abandoned_ = true;
  Lane& lane = *current;
  Fibre* fibre = lane.fibre;
  finish(lane);
  fibre->prepare(fibre_main);
  free_fibres_.push_back(fibre);
  void* unused = nullptr;
  if (Lane* next = pick())
    go_to(next, &unused);
  else
    emulator_switch_stack(&unused, main_stack_);
  __builtin_unreachable();
}

void Worker::found(const char* kind, const std::string& text) const {
  if (!abandoned_) report(kind, context() + ": " + text);
}

// --- waiting for each other
// ----------------------------------------------------------------------------------------------

void Worker::simdgroup_operation(EmulatorLaneOperation operation, const void* in, void* out, const char* name,
                                 unsigned barrier_flags, EmulatorSite site) {
  Lane& lane = *current;
  Simdgroup& simdgroup = simdgroups_[lane.thread.simdgroup];
  lane.operation = operation;
  lane.in = in;
  lane.out = out;
  lane.name = name;
  lane.site = site;
  lane.barrier_flags = barrier_flags;
  lane.state = LaneState::in_simdgroup_operation;
  simdgroup.arrived |= 1u << lane.thread.lane;
  if (simdgroup.arrived == simdgroup.live) {
    run_operation(lane.thread.simdgroup, false);
    // The common case: this lane may go on, and in order it is as good as any.
    if (order_ == Order::in_order && simdgroup.ready >> lane.thread.lane & 1) {
      simdgroup.ready &= ~(1u << lane.thread.lane);
      lane.state = LaneState::runnable;
      return;
    }
  }
  wait();
}

namespace {
bool same_place(const Lane& a, const Lane& b) {
  return a.operation == b.operation && a.site.line == b.site.line && a.site.column == b.site.column &&
         a.site.file == b.site.file;
}
bool earlier(const Lane& a, const Lane& b) {
  return a.site.line != b.site.line ? a.site.line < b.site.line : a.site.column < b.site.column;
}
}  // namespace

/// Runs the operation of the lanes that wait at one place: the first in the source, since code after it is for all.
void Worker::run_operation(uint32_t s, bool stuck) {
  Simdgroup& simdgroup = simdgroups_[s];
  Lane* lanes = &lanes_[s * 32];
  const Lane* first = nullptr;
  for (uint32_t m = simdgroup.arrived; m; m &= m - 1)
    if (!first || earlier(lanes[lowest(m)], *first)) first = &lanes[lowest(m)];
  uint32_t mask = 0;
  const void* in[32];
  void* out[32];
  for (uint32_t m = simdgroup.arrived; m; m &= m - 1) {
    const int l = lowest(m);
    if (!same_place(lanes[l], *first)) continue;
    mask |= 1u << l;
    in[l] = lanes[l].in;
    out[l] = lanes[l].out;
  }
  if (mask != simdgroup.live || stuck)
    found("divergent-simd", std::string(first->name) + " at " + place(first->site) + " is reached by " +
                                std::to_string(__builtin_popcount(mask)) + " of " +
                                std::to_string(__builtin_popcount(simdgroup.live)) +
                                " lanes; move it out of the divergent branch");
  operations_++;
  if (first->operation) {
    first->operation(in, out, mask);
  } else {
    simdgroup.threadgroup_epoch += first->barrier_flags >> 1 & 1;
    simdgroup.device_epoch += first->barrier_flags & 1;
  }
  simdgroup.arrived &= ~mask;
  simdgroup.ready |= mask;
}

void Worker::threadgroup_barrier(unsigned flags, EmulatorSite site) {
  Lane& lane = *current;
  lane.state = LaneState::at_threadgroup_barrier;
  lane.site = site;
  lane.barrier_flags = flags;
  if (++at_barrier_ == live_) {
    pass_threadgroup_barrier(flags, site);
    if (order_ == Order::in_order) {
      simdgroups_[lane.thread.simdgroup].ready &= ~(1u << lane.thread.lane);
      lane.state = LaneState::runnable;
      return;
    }
  }
  wait();
}

/// All living lanes stand at a barrier.
void Worker::pass_threadgroup_barrier(unsigned flags, EmulatorSite site) {
  const Lane* first = nullptr;
  bool same = true;
  for (uint32_t i = 0; i < group_.threads; i++) {
    const Lane& lane = lanes_[i];
    if (lane.state != LaneState::at_threadgroup_barrier) continue;
    if (!first) first = &lane;
    same &= first->site.line == lane.site.line && first->site.column == lane.site.column;
    flags &= lane.barrier_flags;
  }
  if (!site.file && first) site = first->site;
  if (live_ != group_.threads)
    found("early-exit", "threadgroup_barrier at " + place(site) + " is reached by " + std::to_string(live_) + " of " +
                            std::to_string(group_.threads) + " threads; the others returned before it");
  if (!same)
    found("divergent-barrier", "threads wait at different calls of threadgroup_barrier, one at " + place(first->site));
  at_barrier_ = 0;
  barriers_++;
  threadgroup_epoch_ += flags >> 1 & 1;
  device_epoch_ += flags & 1;
  for (Simdgroup& s : simdgroups_) s.ready |= s.live;
}

/// Nobody may run: some lanes wait for an operation that others will not reach. Runs what can be run.
bool Worker::resolve_deadlock() {
  for (uint32_t s = 0; s < simdgroups_.size(); s++)
    if (simdgroups_[s].arrived) {
      run_operation(s, true);
      return true;
    }
  found("deadlock", "the threadgroup makes no progress");
  return false;
}

void* Worker::threadgroup_variable(const void* declaration, size_t size, size_t alignment, const char* name) {
  if (void* known = access.find_variable(declaration)) return known;
  void* address = access.place_threadgroup_memory(size, alignment, name);
  access.add_variable(declaration, address);
  return address;
}

}  // namespace emulator
