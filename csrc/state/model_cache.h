#pragma once
// All that a model keeps of its sequences: keys and values in groups of layers, and recurrent states.
//
// Layers that see the same window make a group with a pool of blocks of its own, so that blocks behind a window can
// be given back while full layers keep theirs.

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "state/kv_cache.h"
#include "state/recurrent_cache.h"

namespace saragossa {

struct CacheOptions {
  int64_t blocks = 0;          // capacity of each group of the KV cache
  int64_t block_tokens = 256;  // 64, 128, 256 or 512
  DType dtype = DType::bf16;   // bf16, f32 or u8
  int64_t slots = 128;         // recurrent states
};

/// What a layer leaves behind: keys and values, or a recurrent state, or nothing of its own.
struct CacheLayer {
  std::optional<KvLayerSpec> kv;
  int64_t window = 0;             // keys that it sees; 0: all
  std::optional<size_t> kv_from;  // the layer whose keys and values it reads
  std::optional<RecurrentLayerSpec> recurrent;
};

/// Where a layer's keys and values lie.
struct KvPlace {
  size_t group = 0, index = 0;
};

class SequenceState;

/// The sequences of a cache, so that those at rest give marks to those that run. A sequence's marks change under the
/// lock of its model, but for its end, which takes the mutex to leave.
struct Sequences {
  std::mutex mutex;
  std::vector<SequenceState*> all;
  std::atomic<uint64_t> steps = 0;
};

class ModelCache {
 public:
  ModelCache(Device& device, const std::vector<CacheLayer>& layers, const CacheOptions& options);

  /// One at least, so that every step has a block table.
  size_t groups() const { return groups_.size(); }
  KvCache& group(size_t i) const { return *groups_[i].cache; }
  /// Keys that the group's layers see; 0: all.
  int64_t window(size_t i) const { return groups_[i].window; }
  int64_t block_tokens() const { return groups_[0].cache->block_tokens(); }

  KvPlace kv_place(size_t layer) const { return *places_[layer]; }
  const KvLayer& kv(const KvPlace& place) const { return groups_[place.group].cache->layer(place.index); }
  RecurrentCache& recurrent() const { return *recurrent_; }
  const RecurrentLayer& recurrent(size_t layer) const { return recurrent_->layer(recurrent_places_[layer]); }

  int64_t bytes_per_token() const;

  Sequences sequences;

 private:
  struct Group {
    int64_t window = 0;
    std::unique_ptr<KvCache> cache;
  };
  std::vector<Group> groups_;
  std::vector<std::optional<KvPlace>> places_;  // of each layer
  std::vector<size_t> recurrent_places_;        // of each layer
  std::unique_ptr<RecurrentCache> recurrent_;
};

}  // namespace saragossa
