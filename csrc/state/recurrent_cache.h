#pragma once
// States of a model's recurrent layers, in slots that sequences and snapshots share.

#include <cstdint>
#include <vector>

#include "device.h"
#include "op_types.h"
#include "state/counted_pool.h"

namespace saragossa {

struct RecurrentLayerSpec {
  DeltaHeads heads;
  int64_t conv_width = 0;
};

/// A pool of slots; slot i is row i of every layer's tensors. A slot is written as a whole, by the step that ends in
/// it; who shares it with others takes a new one for the next. Memory grows as slots are taken, up to `slots`.
class RecurrentCache {
 public:
  RecurrentCache(Device& device, const std::vector<RecurrentLayerSpec>& layers, int64_t slots);

  bool empty() const { return layers_.empty(); }
  const RecurrentLayer& layer(size_t i) const { return layers_[i]; }
  int64_t slots() const { return pool_.limit(); }
  int64_t free_slots() const { return pool_.free(); }
  int64_t allocated_slots() const { return pool_.allocated(); }
  /// Of one slot over all layers.
  int64_t bytes_per_slot() const { return bytes_per_slot_; }

  /// A slot with one reference; Error(context) when none is free.
  int32_t take();
  void share(int32_t slot) { pool_.share(slot); }
  void release(int32_t slot) { pool_.release(slot); }
  bool shared(int32_t slot) const { return pool_.shared(slot); }

 private:
  int64_t grow(int64_t from);

  Device& device_;
  CountedPool pool_;
  std::vector<RecurrentLayer> layers_;
  int64_t bytes_per_slot_ = 0;
};

}  // namespace saragossa
