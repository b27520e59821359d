#pragma once
// A session decodes one or more sequences of a model: prefill, step, rewind.
//
// A row is one sequence. prefill(row, ..., true) draws the row's first token; step(rows) runs the last
// drawn token of each row and draws the next.
//
// On an asynchronous device the loop stays on it: step k + 1 is encoded and committed before the host waits for the
// tokens of step k, whose ids feed it on the device. Where a row has a mask, which the host makes from the tokens
// before it, the forward of step k + 1 runs ahead alone; its draw is a second, small submission of the call that wants
// it. Whatever else is asked of the session first waits for the step that runs ahead and takes back what it did.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/model.h"
#include "state/sequence_state.h"

namespace saragossa {

/// What a row samples with; validated by the caller (src/saragossa/engine/options.py).
struct Sampling {
  SampleParams params{0.0f, 1.0f, 0.0f, 1.0f, 0.0f, 0.0f, 0, 0, 0, 0, 0, -1};
  std::vector<std::pair<int32_t, float>> bias;
  bool penalties() const {
    return params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f;
  }
  /// top-k, top-p or min-p of a draw; a greedy row has none.
  bool filtered() const {
    return params.temperature > 0.0f && (params.top_k > 0 || params.top_p < 1.0f || params.min_p > 0.0f);
  }
};

/// A drawn token; logprobs holds (id, natural log probability) of the token itself, then of the best.
struct Drawn {
  int32_t id = 0;
  std::vector<std::pair<int32_t, float>> logprobs;
};

/// A row's tokens with their keys and values at one moment. Immutable; its blocks are shared, not copied, and stay in
/// the cache as long as it lives.
class Snapshot {
 public:
  int64_t length() const { return state_.length(); }
  const std::vector<int32_t>& tokens() const { return tokens_; }

 private:
  friend class Session;
  explicit Snapshot(std::shared_ptr<Model> model) : model_(std::move(model)), state_(*model_->cache) {}
  std::shared_ptr<Model> model_;  // goes last: the blocks belong to its cache
  SequenceState state_;
  std::vector<int32_t> tokens_;
  std::vector<bool> generated_;
};

class Session {
 public:
  Session(std::shared_ptr<Model> model, int rows, int64_t context);

  int rows() const { return static_cast<int>(rows_.size()); }
  int64_t context() const { return context_; }
  int64_t layers() const { return static_cast<int64_t>(model_->decoder->spec().layers.size()); }
  /// Tokens of a row in the cache; the last drawn one is not yet among them.
  int64_t length(int row) const { return at(row).state.length(); }

  /// Before a row's prefill. Penalties take what the row holds for its prompt; a drawn token that was not run yet, and
  /// those to come, for output, whatever prompts come between them.
  void configure(int row, const Sampling& sampling);
  /// Allowed ids of the row's next draws, one bit each, (vocab + 31) / 32 words; empty: all. Between two steps it
  /// does not wait for the forward that runs ahead.
  void set_mask(int row, std::span<const uint32_t> mask);
  /// One chunk of a prompt, appended to what the row holds, whose drawn token is forgotten; draws a token after it when
  /// `draw`. Where this, logits or hidden fails, the row stays as it was, with its drawn token; but the tokens are in
  /// the row where all went well and nothing can be drawn from their logits.
  void prefill(int row, std::span<const int32_t> tokens, bool draw);
  /// One token for each of the rows, which are distinct and have a drawn token.
  void step(std::span<const int32_t> rows);
  const Drawn& drawn(int row) const { return at(row).drawn; }
  /// Keeps what a rewind to the row's length needs. Free where the model has neither recurrent layers nor windows.
  void mark(int row);
  /// The last position up to `to` that rewind takes: any, but with recurrent layers and windows only marked ones.
  int64_t rewindable(int row, int64_t to);
  /// Back to the first `to` tokens; penalties count what is left. Error(state) where `rewindable` says no.
  void rewind(int row, int64_t to);
  /// What the row holds now; the drawn token is not in it.
  std::shared_ptr<const Snapshot> snapshot(int row);
  /// The row becomes what the snapshot holds. Error(usage) for a snapshot of another model or longer than the context.
  void restore(int row, const Snapshot& from);

  /// Teacher-forced logits [tokens, vocab] of tokens appended to the row; nothing is drawn.
  std::vector<float> logits(int row, std::span<const int32_t> tokens);
  /// Hidden state [layers, hidden] of the last of the tokens appended to the row, after each layer.
  std::vector<float> hidden(int row, std::span<const int32_t> tokens);

 private:
  struct Row {
    explicit Row(ModelCache& cache) : state(cache) {}
    SequenceState state;
    std::vector<int32_t> tokens;  // as long as state.length()
    std::vector<bool> generated;  // of each of them: drawn since configure, else a part of the prompt
    Sampling sampling;
    uint32_t draws = 0;    // since configure
    bool masked = false;   // by its row of masks_
    bool counted = false;  // its row of counts_ may hold something
    Drawn drawn;
    bool has_drawn = false;
  };

  /// What a step draws: row i of the step at i. Two of them: one is read while the next step fills the other.
  struct Draws {
    Tensor ids, logprobs, logprob_ids;
  };
  struct RunningStep {
    std::vector<int32_t> rows;
    size_t draws = 0;            // index of its Draws
    std::vector<Batch> batches;  // one for each group of the cache
    Tensor logits;               // scratch of `forward`: what a step is still to draw from; none: `done` has all of it
    Submission forward;          // of a step that is drawn by a submission of its own
    Submission done;             // goes first: it reads what `forward` holds
    void wait() const;
  };

  Row& at(int row);
  const Row& at(int row) const { return const_cast<Session*>(this)->at(row); }
  void check_tokens(const Row& row, std::span<const int32_t> tokens) const;
  /// Device tensors of a step: token i of `tokens` belongs to row rows[i]. One batch for each group of the cache.
  std::vector<Batch> batches(std::span<const int32_t> tokens, std::span<const int32_t> rows);
  std::vector<Batch> of_groups(const Batch& batch) const;
  /// Tells the rows' next steps to their states; fills in what the batch says of them.
  void advance_states(Batch& batch, std::span<const int32_t> rows, KeepStates keep, bool in_place);
  /// Row i of the logits draws for rows[i]; `sequence` has the same rows on the device.
  void encode_draws(CommandEncoder& enc, const Tensor& logits, std::span<const int32_t> rows, const Tensor& sequence,
                    const Draws& draws);
  /// False where nothing could be drawn: the row has no token to go on from.
  bool read_draw(int row, const Draws& draws, int64_t i);
  [[noreturn]] static void fail_draw();
  void count_prompt(int row, std::span<const int32_t> tokens);
  /// Room for so many entries of logit bias a row, on the device.
  void reserve_bias(int64_t entries);
  void write_bias(int row);
  /// Appends tokens to the row by one submission that `encode` fills; where it fails the row stays as it was.
  void append(int row, std::span<const int32_t> tokens,
              const std::function<void(CommandEncoder&, std::span<const Batch>)>& encode);
  void committed(Row& row, std::span<const int32_t> tokens, bool generated);

  /// The step after `ahead` ones that run: 0 begins from the tokens that the host knows, 1 from those on the device.
  RunningStep start_step(std::span<const int32_t> rows, int64_t ahead);
  /// Draws from a forward that ran ahead.
  void start_draw(RunningStep& step);
  void encode_end(CommandEncoder& enc, const RunningStep& step, const Tensor& logits);
  bool may_run_ahead(std::span<const int32_t> rows) const;
  /// A row has a mask: the host makes the next one from the token of this step.
  bool guided(std::span<const int32_t> rows) const;
  /// Waits for the step that runs ahead, if any, and takes back what it did.
  void settle();
  /// Sets the draws and counts on the device to what the host knows of the row.
  void sync(int row);

  std::shared_ptr<Model> model_;
  int64_t context_;
  std::vector<Row> rows_;
  Tensor ids_, positions_, sequence_;  // i32 [rows]: of the last step, fed on the device
  Tensor identity_;                    // i32 [rows + 1]: 0, 1, 2, ...
  std::vector<Tensor> block_tables_;   // of each group of the cache: i32 [rows, max_blocks]
  struct StateSlots {
    Tensor in, out;  // i32 [rows]
  };
  StateSlots slots_[2];  // of a step that runs and the next one; none without recurrent layers
  size_t next_slots_ = 0;
  Tensor params_, counts_;
  Tensor masks_;            // u32 [rows, words] or none; rows without a mask have all bits set
  Tensor bias_ids_, bias_;  // [rows, the longest list so far] or none
  Draws draws_[2];
  size_t next_draws_ = 0;
  std::vector<int32_t> stepping_;     // rows that ids_ and positions_ stand for; empty: none
  std::optional<RunningStep> ahead_;  // goes first: its buffers are the others'
};

}  // namespace saragossa
