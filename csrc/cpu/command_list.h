#pragma once
// Ops that wait for submit: plain closures, placed one behind the other in memory that is kept between steps.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace saragossa::cpu {

template <class Context>
class CommandList {
 public:
  /// fn(context), called by run. It must be plain data: the submission keeps what its pointers point to.
  /// Returns the copy, which lives until clear.
  template <class Fn>
  Fn& push(const Fn& fn) {
    static_assert(std::is_trivially_destructible_v<Fn> && alignof(Fn) <= alignof(std::max_align_t));
    struct Node : Header {
      explicit Node(const Fn& f) : fn(f) {}
      Fn fn;
    };
    Node* node = new (take(sizeof(Node))) Node(fn);
    node->call = [](Header* self, Context& context) { static_cast<Node*>(self)->fn(context); };
    *tail_ = node;
    tail_ = &node->next;
    return node->fn;
  }

  /// between() is called after each closure; what it throws ends the run.
  template <class Fn>
  void run(Context& context, const Fn& between) {
    for (Header* node = head_; node; node = node->next) {
      node->call(node, context);
      between();
    }
  }

  void clear() {
    head_ = nullptr;
    tail_ = &head_;
    chunk_ = used_ = 0;
  }

  CommandList() = default;
  CommandList(const CommandList&) = delete;
  CommandList& operator=(const CommandList&) = delete;

 private:
  struct Header {
    void (*call)(Header*, Context&) = nullptr;
    Header* next = nullptr;
  };
  static constexpr size_t kChunk = 64 * 1024;

  void* take(size_t bytes) {
    constexpr size_t align = alignof(std::max_align_t);
    bytes = (bytes + align - 1) / align * align;
    if (chunk_ < chunks_.size() && used_ + bytes > kChunk) ++chunk_, used_ = 0;
    if (chunk_ == chunks_.size()) chunks_.push_back(std::make_unique<std::byte[]>(kChunk));
    void* at = chunks_[chunk_].get() + used_;
    used_ += bytes;
    return at;
  }

  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  size_t chunk_ = 0, used_ = 0;
  Header* head_ = nullptr;
  Header** tail_ = &head_;
};

}  // namespace saragossa::cpu
