#pragma once

#include <cstdint>
#include <optional>

#include "kernels/trellis.h"
#include "kernels/trellis_search.h"
#include "quantization/trellis_encoder.h"

namespace espalier::quantization {

/// Codes rows of a stored matrix S, whole or in parts. One per thread. `weights`, null for ones,
/// are how much the square errors of the row's columns count.
class TrellisRow {
 public:
  TrellisRow(const kernels::TrellisFormat& format, TrellisScale scale);

  /// The scale with which the codes of a row are searched; never zero.
  float first_scale(const float* row, const float* weights, int columns);
  /// Codes `blocks` trellis blocks of a row from `first_block` on: `values` and `weights` are
  /// theirs alone, and so is `decoded`, what the codes mean without the scale; `words` begin with
  /// the row.
  void search(const float* values, const float* weights, float scale, int first_block, int blocks,
              std::uint32_t* words, float* decoded);
  /// The scale of least square error for what was decoded, where scales are refitted; else `scale`.
  float fit(const float* row, const float* decoded, int columns, float scale) const;

 private:
  /// A larger scale where the code would cut off more than it gains by being fine.
  float search_scale(const float* row, const float* weights, int columns, float first);
  /// The square error of one trellis block with a scale.
  double block_error(const float* values, const float* weights, float scale, int block);
  /// `words` begin with the trellis block.
  void code(const float* values, const float* weights, float scale, int block, std::uint32_t* words,
            float* decoded);

  kernels::TrellisFormat format_;
  TrellisScale scale_;
  kernels::TrellisSearch search_;
  std::optional<kernels::TrellisSearch> even_search_;  // where even trellis blocks differ
};

std::uint16_t half_bits(float value);

}  // namespace espalier::quantization
