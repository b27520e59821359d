#pragma once
// Drafters: guesses of what a session's row will draw, for Session::verify. A wrong guess costs time, never a token.

#include <cstdint>
#include <vector>

#include "runtime/session.h"

namespace saragossa {

class Drafter {
 public:
  virtual ~Drafter() = default;
  /// Up to `most` tokens that may follow the row's drawn one, which is there.
  virtual std::vector<int32_t> propose(Session& session, int row, int64_t most) = 0;
};

/// What followed the same tokens before: the longest match of the row's end, the latest of equal ones.
class LookupDrafter : public Drafter {
 public:
  static constexpr int64_t kLookBack = 32768;  // tokens that are searched
  LookupDrafter(int64_t shortest, int64_t longest);
  std::vector<int32_t> propose(Session& session, int row, int64_t most) override;

 private:
  int64_t shortest_, longest_;
};

/// The model's own head for multi-token prediction.
class MtpDrafter : public Drafter {
 public:
  std::vector<int32_t> propose(Session& session, int row, int64_t most) override {
    return session.draft_by_mtp(row, most);
  }
};

/// A block drafter that was loaded with the model.
class BlockDrafter : public Drafter {
 public:
  std::vector<int32_t> propose(Session& session, int row, int64_t most) override {
    return session.draft_by_block(row, most);
  }
};

/// Another, smaller model with the same tokens. It draws with the row's own noise, so that sampled drafts are right
/// where both models agree.
class ModelDrafter : public Drafter {
 public:
  ModelDrafter(std::shared_ptr<Model> model, int64_t context, int64_t chunk);
  std::vector<int32_t> propose(Session& session, int row, int64_t most) override;

 private:
  /// Appends its draws to `out`; those before a failure stay there.
  void run(const RowView& view, int64_t most, std::vector<int32_t>& out);

  int64_t vocab_, chunk_;
  Session session_;
};

}  // namespace saragossa
