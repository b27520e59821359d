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
//
// verify(row, drafts) is up to eight steps at once: the drawn token and drafts are the rows of one run, each row draws
// with the noise and the counts of the step that it stands for, and what follows a draft counts as long as the draft is
// what was drawn. So the tokens are those of plain steps, whoever made the drafts (session_verify.cpp).

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/hidden_tail.h"
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

/// Error(device): logits of which nothing can be drawn.
class NothingDrawn : public Error {
 public:
  NothingDrawn();
};

/// A drawn token; logprobs holds (id, natural log probability) of the token itself, then of the best.
struct Drawn {
  int32_t id = 0;
  std::vector<std::pair<int32_t, float>> logprobs;
};

/// A row's tokens with their keys, values and recurrent states at one moment, and what a head for drafts still needs of
/// them. Immutable; its blocks and its slot are shared, not copied, and stay in the cache as long as it lives.
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
  HiddenTail tail_;
};

/// What a drafter that stands outside the session needs of a row.
struct RowView {
  std::vector<int32_t> tokens;  // in the cache
  std::vector<bool> generated;
  Drawn drawn;
  Sampling sampling;
  uint32_t draws = 0;
};

class Session {
 public:
  Session(std::shared_ptr<Model> model, int rows, int64_t context);

  int rows() const { return static_cast<int>(rows_.size()); }
  int64_t context() const { return context_; }
  int64_t vocab() const { return model_->decoder->spec().vocab; }
  int64_t layers() const { return static_cast<int64_t>(model_->decoder->spec().layers.size()); }
  /// Tokens of a row in the cache; the last drawn one is not yet among them, and of what is verified and not kept yet
  /// as many as were taken.
  int64_t length(int row) const {
    const Row& r = at(row);
    return r.state.length() + (r.verified ? r.verified->size() - r.untaken : 0);
  }

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
  /// The last one, of a verification that is not kept yet too.
  const Drawn& drawn(int row) const {
    const Row& r = at(row);
    return r.verified ? r.verified->drawn.back() : r.drawn;
  }

  /// Tokens that were drawn and not taken yet: one, or those of a verification. For callers that hand tokens on one by
  /// one and may be interrupted anywhere: what was drawn, what was taken and what is in the cache change together.
  int64_t untaken(int row) const { return at(row).untaken; }
  /// The first of them.
  const Drawn& take(int row);
  /// What `take` returned last; none: since a prompt, a rewind or a restore nothing was taken.
  const std::optional<Drawn>& taken(int row) const { return at(row).taken; }
  /// Of a verification, takes back what was not taken.
  void forget_untaken(int row);

  static constexpr int64_t kMostDrafts = 7;  // rows whose sums a device adds as those of one, less the drawn token's
  /// Runs the row's drawn token and drafts of what follows it. Returns the tokens drawn: one more than drafts that were
  /// right. They are kept, as by as many steps, unless `keep` says otherwise before anything else is asked of the
  /// session. A row with a mask, which stands for one draw, has its drafts ignored. Where it fails, the row stays as it
  /// was.
  std::vector<Drawn> verify(int row, std::span<const int32_t> drafts);
  /// Keeps the first `count` tokens of the row's last verify: one at least. The last of them is then the drawn one.
  void keep(int row, int64_t count);
  /// Drafts of what follows the row's drawn token, by the model's MTP head or its block drafter; fewer where the
  /// context ends, none where the cache is full.
  std::vector<int32_t> draft_by_mtp(int row, int64_t count);
  std::vector<int32_t> draft_by_block(int row, int64_t count);
  /// Logits [count, vocab] of such drafts, for diagnosis; `drafts` are given instead of drawn.
  std::vector<float> mtp_logits(int row, std::span<const int32_t> drafts);
  /// Logits [count, vocab] of the first drafts of a block.
  std::vector<float> block_logits(int row, int64_t count);
  /// States that wait until the head has made keys of them, for diagnosis.
  int64_t waiting_states(int row) const;
  RowView view(int row);
  /// For a drafter's row whose tokens are those of `from` so far: it draws as that row will draw.
  void follow(int row, const RowView& from);
  /// Tokens of the row in the cache.
  std::vector<int32_t> tokens(int row);

  /// Keeps what a rewind to the row's length needs. Free where the model has neither recurrent layers nor windows.
  /// pin: it stays until it is unpinned, as the place where an interrupted prompt goes back to.
  void mark(int row, bool pin = false);
  void unpin(int row);
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
  /// A verification whose tokens are not kept yet.
  struct Verified {
    std::vector<int32_t> run;  // the drawn token, then the drafts that were right
    std::vector<Drawn> drawn;  // behind each of them
    std::vector<float> states;
    int64_t size() const { return static_cast<int64_t>(drawn.size()); }
  };
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
    int64_t untaken = 0;  // of the last draws
    std::optional<Drawn> taken;
    HiddenTail tail;                               // of models with a head for drafts
    std::map<int64_t, std::vector<float>> marked;  // the state in front of a marked position
    std::optional<Verified> verified;
  };

  /// What a step draws: row i of the step at i. Two of them: one is read while the next step fills the other.
  struct Draws {
    Tensor ids, logprobs, logprob_ids;
    Tensor states;  // f32 [rows, state_width] where the model has a head for drafts
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

  void configure_locked(int row, const Sampling& sampling);
  void forget_drawn(Row& row) const { row.has_drawn = false, row.untaken = 0, row.taken.reset(); }
  Row& at(int row);
  const Row& at(int row) const { return const_cast<Session*>(this)->at(row); }
  void check_tokens(const Row& row, std::span<const int32_t> tokens) const;
  /// Device tensors of a step: token i of `tokens` belongs to row rows[i]. One batch for each group of the cache.
  std::vector<Batch> batches(std::span<const int32_t> tokens, std::span<const int32_t> rows);
  std::vector<Batch> of_groups(const Batch& batch) const;
  /// The row's table of a group on the device, which has room for its blocks.
  int32_t* block_table(size_t group, int row);
  /// The row's blocks, on the device.
  void write_block_tables(int row);
  /// Tells the rows' next steps to their states; fills in what the batch says of them.
  void advance_states(Batch& batch, std::span<const int32_t> rows, KeepStates keep, bool in_place);
  /// Row i of the logits draws for rows[i]; `sequence` has the same rows on the device.
  void encode_draws(CommandEncoder& enc, const Tensor& logits, std::span<const int32_t> rows, const Tensor& sequence,
                    const Draws& draws);
  Draws make_draws(int64_t rows) const;
  static Drawn drawn_of(const Draws& draws, int64_t i, int32_t top_logprobs);
  /// False where nothing could be drawn: the row has no token to go on from.
  bool read_draw(int row, const Draws& draws, int64_t i);
  /// Throws NothingDrawn.
  [[noreturn]] static void fail_draw();
  void count_prompt(int row, std::span<const int32_t> tokens);
  /// Room for so many entries of logit bias a row, on the device.
  void reserve_bias(int64_t entries);
  void write_bias(int row);
  /// Appends tokens to the row by one submission that `encode` fills; where it fails the row stays as it was.
  void append(int row, std::span<const int32_t> tokens,
              const std::function<Decoder::Output(CommandEncoder&, std::span<const Batch>)>& encode);
  void committed(Row& row, std::span<const int32_t> tokens, bool generated);

  const MtpHead* mtp() const { return model_->decoder->mtp(); }
  const BlockHead* block() const { return model_->decoder->block(); }
  /// The model has a head for drafts, which wants each token's state.
  bool has_head() const { return mtp() || block(); }
  int64_t state_width() const { return model_->decoder->state_width(); }
  /// The row's pending states on the device, with room for `more` behind them.
  Tensor pending_states(const Row& row, int64_t more) const;
  /// Batches of pairs of the row that begin at position `first`; ids are the next tokens.
  std::vector<Batch> pair_batches(int row, const Tensor& ids, int64_t first);
  /// Keys and values of the head for the pairs that end with `tokens`, which are not in the row yet.
  /// every: their states. Returns these, for end_pairs once all has run.
  Tensor encode_pairs(CommandEncoder& enc, int row, std::span<const int32_t> tokens, const Tensor& every);
  void end_pairs(Row& row, const Tensor& states);
  /// Pairs of the states that plain steps leave, many at once.
  void catch_up(int row);
  /// Drafts behind the drawn token: drawn, or as they are `given`; logits f32 [count, vocab] where wanted.
  void run_mtp(int row, int64_t count, std::span<const int32_t> given, const Tensor& logits);
  void run_block(int row, int64_t count, const Tensor& logits);
  /// Error(usage) unless there is the head and a drawn token; settles the session.
  void begin_drafts(int row, bool head, const char* name);
  std::vector<int32_t> drafted(int64_t count) const;
  /// What the row draws with in steps to come, the one after `first` others at the first row of the logits.
  SampleArgs args_ahead(int row, const Tensor& logits, int64_t first);
  std::vector<Drawn> run_verify(int row, std::span<const int32_t> drafts);
  /// Of `run`, what the draws say.
  Verified read_verified(std::vector<int32_t> run, int32_t top_logprobs) const;
  void close(int row, int64_t count);
  void close_verified();

  /// The step after `ahead` ones that run: 0 begins from the tokens that the host knows, 1 from those on the device.
  RunningStep start_step(std::span<const int32_t> rows, int64_t ahead);
  /// Draws from a forward that ran ahead.
  void start_draw(RunningStep& step);
  void encode_end(CommandEncoder& enc, const RunningStep& step, const Tensor& logits);
  bool may_run_ahead(std::span<const int32_t> rows) const;
  /// A row has a mask: the host makes the next one from the token of this step.
  bool guided(std::span<const int32_t> rows) const;
  /// Keeps what was verified; waits for the step that runs ahead, if any, and takes back what it did.
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
  struct Verification {
    Tensor params;  // u8 [kMostDrafts + 1, sizeof(SampleParams)]
    Tensor counts;  // u32 [kMostDrafts + 1, vocab], when penalties first ask for it
    Tensor bias_ids, bias;
    Draws draws;
  };
  Verification verification_;
  Draws draws_[2];
  size_t next_draws_ = 0;
  std::vector<int32_t> stepping_;     // rows that ids_ and positions_ stand for; empty: none
  std::optional<RunningStep> ahead_;  // goes first: its buffers are the others'
};

}  // namespace saragossa
