#pragma once
// Blocks: closures that clang compiles by a published ABI. The runtime half (copying a block from the stack to
// the heap, the life of its __block variables) is in block.cpp under the names that clang's code calls.

#include <utility>

extern "C" {
void* _Block_copy(const void* block);
void _Block_release(const void* block);
}

namespace emulator::host {

/// An owning reference to a block of signature void(Args...), for completion handlers.
template <class... Args>
class Block {
 public:
  explicit Block(const void* block) : block_(_Block_copy(block)) {}
  Block(Block&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { _Block_release(block_); }

  void operator()(Args... args) const {
    // A block literal begins with isa, flags and a reserved int; its function stands behind them.
    struct Literal {
      void* isa;
      int flags;
      int reserved;
      void (*invoke)(void*, Args...);
    };
    if (block_) static_cast<Literal*>(block_)->invoke(block_, args...);
  }

 private:
  void* block_;
};

}  // namespace emulator::host
