#pragma once
// A decoder over the encoder: it knows ops and shapes, no backend and no model's name.

#include <optional>
#include <span>
#include <vector>

#include "nn/block_head.h"
#include "nn/layer.h"
#include "nn/mtp.h"
#include "state/model_cache.h"

namespace saragossa {

class Decoder {
 public:
  Decoder(WeightLoader& weights, DecoderSpec spec, Device& device);

  /// What a forward leaves, each f32 with R rows; of the normed state more than logits is wanted by drafters.
  struct Output {
    Tensor logits;  // [R, vocab]
    Tensor normed;  // [R, hidden]: behind the final norm
    Tensor hidden;  // [R, hidden]: in front of it
    Tensor every;   // [T, state_width]: what a drafting head reads of every row of the batch; where asked for
  };

  /// Runs the batch through the layers; its keys, values and states go into the cache.
  /// batches: the batch once for each group of the cache, with that group's block table.
  /// rows: i32 [R], the batch rows whose logits are wanted; without rows nothing beyond the cache is computed, and the
  /// result is empty.
  /// every: the states for the drafting head, too. For an MTP head the last layer and the final norm run for every row;
  /// that changes no bit of the wanted rows' results, which are computed apart where they are fewer.
  /// trace, for diagnosis: f32 [R, hidden] of the wanted rows after each layer, one tensor a layer.
  Output forward(CommandEncoder& enc, std::span<const Batch> batches, const ModelCache& cache, const Tensor& rows,
                 bool every = false, std::vector<Tensor>* trace = nullptr) const;

  /// f32 [R, vocab] of states behind a final norm.
  Tensor logits(CommandEncoder& enc, const Tensor& normed) const;

  const DecoderSpec& spec() const { return spec_; }
  /// Of the layers, then of the drafting head's.
  std::vector<CacheLayer> cache_layers() const;
  /// The head for multi-token prediction; null where the spec has none.
  const MtpHead* mtp() const { return mtp_ ? &*mtp_ : nullptr; }
  /// The block drafter; null where there is none. A decoder has one head for drafts at most.
  const BlockHead* block() const { return block_ ? &*block_ : nullptr; }
  /// Values of a row's state that the head reads: behind the final norm, or behind the layers that a block drafter
  /// taps.
  int64_t state_width() const {
    return spec_.hidden * (spec_.block ? static_cast<int64_t>(spec_.block->taps.size()) : 1);
  }
  const Weight& embedding() const { return embed_; }
  const Weight& head() const { return head_; }
  const Rope& rope(size_t i) const { return ropes_[i]; }

 private:
  struct Pass;
  /// The mixer of layer i. store_only: what it leaves in the cache is enough.
  void mix(const Pass& p, size_t i, bool store_only) const;
  /// The rest of the last layer for the wanted rows, which go on alone; then for every row, where their states are
  /// wanted too.
  Output finish_last(Pass& p, bool every_normed) const;
  /// f32 [layers, T, width]: each layer's own input; none where there is none.
  Tensor per_layer_inputs(CommandEncoder& enc, const Tensor& x, const Tensor& ids) const;

  DecoderSpec spec_;
  Weight embed_, head_, per_layer_embed_, per_layer_proj_;
  Tensor norm_, per_layer_norm_;
  std::vector<DecoderLayer> layers_;
  std::vector<Rope> ropes_;
  std::optional<MtpHead> mtp_;
  std::optional<BlockHead> block_;
  size_t last_stored_ = 0;  // the last layer that leaves something in the cache
};

/// f32 [rows, parts * width]: each row's parts one after another. stacked: [parts * rows, width], part by part.
Tensor side_by_side(CommandEncoder& enc, const Tensor& stacked, int64_t parts);

/// Tables of the spec's ropes on the device.
std::vector<Rope> upload_ropes(const DecoderSpec& spec, Device& device);

}  // namespace saragossa
