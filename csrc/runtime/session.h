#pragma once
// A session decodes one or more sequences of a model: prefill, step, rewind.
//
// A row is one sequence. prefill(row, ..., true) draws the row's first token; step(rows) runs the last
// drawn token of each row and draws the next. The host reads what was drawn after the submission.

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/model.h"

namespace saragossa {

/// What a row samples with; validated by the caller (src/saragossa/engine/options.py).
struct Sampling {
  SampleParams params{0.0f, 1.0f, 0.0f, 1.0f, 0.0f, 0.0f, 0, 0, 0, 0, 0, -1};
  std::vector<std::pair<int32_t, float>> bias;
  bool penalties() const {
    return params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f;
  }
};

/// A drawn token; logprobs holds (id, natural log probability) of the token itself, then of the best.
struct Drawn {
  int32_t id = 0;
  std::vector<std::pair<int32_t, float>> logprobs;
};

class Session {
 public:
  Session(std::shared_ptr<Model> model, int rows, int64_t context);

  int rows() const { return static_cast<int>(rows_.size()); }
  int64_t context() const { return context_; }
  int64_t layers() const { return static_cast<int64_t>(model_->decoder->spec().layers.size()); }
  /// Tokens of a row in the cache; the last drawn one is not yet among them.
  int64_t length(int row) const { return at(row).state.length(); }

  /// Before a row's prefill. Forgets the row's counts.
  void configure(int row, const Sampling& sampling);
  /// Allowed ids of the row's next draws, one bit each, (vocab + 31) / 32 words; empty: all.
  void set_mask(int row, std::span<const uint32_t> mask);
  /// One chunk of a prompt, appended to what the row holds; draws a token after it when `draw`.
  void prefill(int row, std::span<const int32_t> tokens, bool draw);
  /// One token for each of the rows, which are distinct and have a drawn token.
  void step(std::span<const int32_t> rows);
  const Drawn& drawn(int row) const { return at(row).drawn; }
  /// Back to the first `to` tokens; penalties count what is left.
  void rewind(int row, int64_t to);

  /// Teacher-forced logits [tokens, vocab] of tokens appended to the row; nothing is drawn.
  std::vector<float> logits(int row, std::span<const int32_t> tokens);
  /// Hidden state [layers, hidden] of the last of the tokens appended to the row, after each layer.
  std::vector<float> hidden(int row, std::span<const int32_t> tokens);

 private:
  struct Row {
    explicit Row(KvCache& cache) : state(cache) {}
    SequenceState state;
    std::vector<int32_t> tokens;  // as long as state.length()
    int64_t prompt = 0;           // how many of them came through prefill
    Sampling sampling;
    Tensor bias_ids, bias, mask;
    Drawn drawn;
    bool has_drawn = false;
  };

  Row& at(int row);
  const Row& at(int row) const { return const_cast<Session*>(this)->at(row); }
  void check_tokens(const Row& row, std::span<const int32_t> tokens) const;
  /// Device tensors of a step: token i of `tokens` belongs to row rows[i].
  Batch batch(std::span<const int32_t> tokens, std::span<const int32_t> rows);
  void encode_draw(CommandEncoder& enc, const Tensor& logits, int row);
  void read_draw(int row);
  void count_prompt(int row, std::span<const int32_t> tokens);
  Tensor forward(CommandEncoder& enc, int row, std::span<const int32_t> tokens, const Tensor& wanted, Batch& batch,
                 std::vector<Tensor>* hidden = nullptr);
  void committed(Row& row, std::span<const int32_t> tokens, bool prompt);

  std::shared_ptr<Model> model_;
  int64_t context_;
  std::vector<Row> rows_;
  Tensor ids_, positions_, sequence_;  // i32 [rows]: of the last step, fed on the device
  Tensor identity_;                    // i32 [rows]: 0, 1, 2, ...
  Tensor block_table_;                 // i32 [rows, max_blocks]
  Tensor params_, counts_, drawn_ids_, logprobs_, logprob_ids_;
  std::vector<int32_t> stepping_;  // rows that ids_ and positions_ stand for; empty: none
};

}  // namespace saragossa
