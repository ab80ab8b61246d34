#pragma once

#include <cstddef>
#include <vector>

#include "kernels/recurrent_state.h"
#include "mlx/mlx.h"

namespace espalier::state {

/// What one recurrent layer keeps per sequence.
struct RecurrentLayerShape {
  int taps;      // of the causal convolution; 0 or 1: none
  int channels;  // of the convolution
  int floats;    // of the recurrent state; 0: none
};

/// The recurrent memory of one model: `slots` states of fixed size in every layer; slot s of a
/// sequence is slot s of all layers. A fresh slot's contents are meaningless: kernels take the
/// state before position 0 as zero. Memory becomes resident as slots are written. Used from the
/// engine's thread alone.
class RecurrentPool {
 public:
  RecurrentPool(const std::vector<RecurrentLayerShape>& layers, int slots);

  /// Whether the model has no recurrent layers.
  bool empty() const { return layers_.empty(); }
  int slots() const { return slots_; }
  int free_slots() const { return static_cast<int>(free_.size()); }
  kernels::RecurrentLayer& layer(int index) { return layers_.at(index); }

  /// Bytes of one sequence's state in all layers.
  static std::size_t bytes_per_sequence(const std::vector<RecurrentLayerShape>& layers);

  /// Throws `std::logic_error` when no slot is left: admission reserved them.
  int allocate();
  void release(int slot);
  /// Makes slot `to` hold what slot `from` holds; nothing may be computing.
  void copy(int from, int to);

 private:
  std::vector<kernels::RecurrentLayer> layers_;
  int slots_;
  std::vector<int> free_;  // the next to hand out last
};

}  // namespace espalier::state
