#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/trellis.h"
#include "kernels/trellis_search.h"
#include "quantization/trellis_encoder.h"

namespace espalier::quantization {

/// Codes rows of a stored matrix S, whole or in parts. One per thread.
class TrellisRow {
 public:
  TrellisRow(const kernels::TrellisFormat& format, TrellisScale scale);

  /// The scale with which the codes of a row are searched; never zero.
  float first_scale(const float* row, int columns) const;
  /// Codes `blocks` trellis blocks of a row from `first_block` on: `values` are theirs alone, and
  /// so is `decoded`, what the codes mean without the scale; `words` begin with the row.
  void search(const float* values, float scale, int first_block, int blocks, std::uint32_t* words,
              float* decoded);
  /// The scale of least square error for what was decoded, where scales are refitted; else `scale`.
  float fit(const float* row, const float* decoded, int columns, float scale) const;

 private:
  kernels::TrellisFormat format_;
  TrellisScale scale_;
  kernels::TrellisSearch search_;
  std::optional<kernels::TrellisSearch> even_search_;  // where even trellis blocks differ
  std::vector<float> scaled_;
};

std::uint16_t half_bits(float value);

}  // namespace espalier::quantization
