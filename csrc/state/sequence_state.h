#pragma once
// One sequence's part of a model's cache: blocks of keys and values, and the state of its recurrent layers.

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "state/model_cache.h"

namespace saragossa {

/// Whether a step's states are kept behind every row (drafts that may be refused) or behind the last one.
enum class KeepStates { last, each };

/// Whose marks make room in a full cache: drafts are worth no other sequence's places to go back to.
enum class Marks { own, all };

class SequenceState {
 public:
  static constexpr size_t kMarks = 8;  // that a sequence keeps

  explicit SequenceState(ModelCache& cache);
  ~SequenceState();
  SequenceState(SequenceState&& other) noexcept;
  SequenceState(const SequenceState&) = delete;
  SequenceState& operator=(const SequenceState&) = delete;

  /// Tokens that the cache holds.
  int64_t length() const { return length_; }
  /// Blocks of a group, from position 0; -1 where they were given back behind a window.
  const std::vector<int32_t>& blocks(size_t group) const { return blocks_[group]; }

  /// Blocks for `tokens` more; what is written to is made private before: the block of position `from`, which may lie
  /// in front of the end, and those behind it. Where the cache is full marks go first, but for pinned ones: the oldest
  /// of this sequence, then of the one that rested longest.
  void reserve(int64_t tokens, int64_t from, Marks marks = Marks::all);
  void reserve(int64_t tokens) { reserve(tokens, length_); }

  /// Slots of a step of `rows` that was reserved: where it starts from (-1: zeros), and what each row leaves (-1:
  /// nothing). Steps follow each other: one may be told before the one in front of it is committed.
  /// The states of several rows, which drafts want, take the place of own marks only.
  /// in_place: the step may write over the state that it starts from, which is lost if it fails.
  struct Slots {
    int32_t in = -1;
    std::vector<int32_t> out;
  };
  Slots advance(int64_t rows, KeepStates keep, bool in_place);
  /// The first `tokens` rows of the oldest step: all of them, or fewer where the state behind each was kept; then no
  /// step may stand behind it. Gives back blocks that no window reaches any more.
  void commit(int64_t tokens);
  /// Drops steps that were not committed, but for the oldest `keep` of them, and what was reserved for them.
  void cancel(size_t keep = 0);
  /// Drops all steps that were not committed, of which the oldest may have run in part. Where it wrote over the state
  /// that it started from, that is lost: Error(state) for all that needs it, until a rewind or a snapshot brings one.
  void lose();

  /// Keeps what a rewind to here needs, as long as the sequence is not rewound to a place before. Older marks make
  /// room: those near the end stay dense.
  void mark();
  /// A mark that stays until it is unpinned, another one is pinned, or the sequence is rewound to a place before.
  void pin();
  void unpin() { pinned_ = 0; }
  /// The last position up to `to` that rewind takes.
  int64_t rewindable(int64_t to) const;
  /// Drops what stands at position `to` and behind. Error(state) where a snapshot would be needed.
  void rewind(int64_t to);
  /// Becomes what `from` is, without copying it. Marks are not taken over.
  void share(const SequenceState& from);

 private:
  struct Mark {
    int64_t position = 0;
    int32_t slot = -1;
    std::vector<std::vector<int32_t>> blocks;  // of groups with a window, by group: those that are not given back
  };

  int64_t keys_from(size_t group, int64_t position) const;
  void release_behind_windows();
  void truncate(size_t group, int64_t tokens);
  static constexpr size_t kSlots = ~size_t{0};  // beside groups: the pool of recurrent states
  /// Calls f, which takes from this pool, until there is room or no mark has anything of the pool.
  template <class F>
  auto with_room(size_t pool, Marks marks, F f) -> decltype(f());
  bool drop_oldest_mark(size_t pool);
  bool drop_mark_of_another(size_t pool);
  void enter();
  void leave();
  void drop_last_step();
  void hold(const Mark& mark);
  void drop(const Mark& mark);
  void drop_marks_behind(int64_t position);
  void set_slot(int32_t slot);
  void check_kept() const;
  void clear();
  bool recurrent() const { return !cache_->recurrent().empty(); }

  ModelCache* cache_;
  std::vector<std::vector<int32_t>> blocks_;  // by group
  int64_t length_ = 0;
  int32_t slot_ = -1;  // of the state at length_; -1: zeros
  bool lost_ = false;  // a step that failed wrote over it
  std::deque<Slots> steps_;
  std::vector<Mark> marks_;  // ascending
  int64_t pinned_ = 0;       // position of the mark that stays; 0: none
  uint64_t last_step_ = 0;   // by the count of the cache
};

}  // namespace saragossa
