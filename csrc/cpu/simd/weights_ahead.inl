// Weights into the second cache before they are needed. Included in the anonymous namespace of a matvec, so that each
// instruction set has its own copy. Into the second: the first cache has too few outstanding misses (24 on Zen 4, 14
// GB/s) to keep the memory busy.

/// Bytes that a core reads one behind the other, asked for ahead of their use; behind `end` those from `next` on. It
/// turns once: of a share that is shorter than the distance, some first bytes of what follows are not asked for.
class Ahead {
 public:
  /// For a tile of rows of `row_bytes` from `data` on, `distance` bytes ahead; where nobody has asked for the first
  /// ones yet, that is done at once.
  Ahead(const uint8_t* data, int64_t row_bytes, const OutTile& tile, const uint8_t* next, int64_t distance)
      : at_(data + tile.begin * row_bytes),
        end_(data + std::max(tile.end, tile.upcoming.end) * row_bytes),
        next_(next ? next : at_) {
    if (tile.upcoming.asked) {
      at_ += distance;
      turn();
    } else {
      for (int64_t done = 0; done < distance; done += 512) fetch(512);
    }
  }

  void fetch(int64_t bytes) {
    ask(0, bytes);
    pass(bytes);
  }
  /// fetch in parts: asks for [from, from + bytes) from here on, then passes all of it.
  void ask(int64_t from, int64_t bytes) const {
    for (int64_t line = from; line < from + bytes; line += 64) __builtin_prefetch(at_ + line, 0, 2);
  }
  void pass(int64_t bytes) {
    at_ += bytes;
    turn();
  }

 private:
  void turn() {
    if (at_ < end_) return;
    at_ = next_ + (at_ - end_);
    end_ = reinterpret_cast<const uint8_t*>(UINTPTR_MAX);
  }

  const uint8_t* at_;
  const uint8_t* end_;
  const uint8_t* next_;
};
