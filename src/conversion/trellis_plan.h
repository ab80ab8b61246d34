#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/trellis.h"
#include "quantization/trellis_encoder.h"

namespace espalier::conversion {

/// What is asked of trellis codes.
struct TrellisOptions {
  /// Of every matrix; the axis is chosen for each.
  kernels::TrellisFormat format;
  /// Layers to be coded by their names, with bits of their own; empty: all that can be.
  std::map<std::string, kernels::TrellisFormat> layers = {};
  quantization::TrellisScale scale = quantization::TrellisScale::searched;
};

/// What "2", "2.5", "3", "3.5" and "4" mean, or the path of a JSON file: an object of such numbers
/// by the names of layers. `format` gives state and code. Throws `UsageError` for anything else and
/// `LoadError` for a file that cannot be read.
TrellisOptions parse_trellis(const std::string& text, const kernels::TrellisFormat& format);

/// `format` with the bits that "2", "2.5", "3", "3.5" and "4" mean. Throws `UsageError`.
kernels::TrellisFormat parse_trellis_bits(const std::string& text,
                                          const kernels::TrellisFormat& format);

/// "3.5".
std::string trellis_bits(const kernels::TrellisFormat& format);

/// Along which dimension of a weight [outputs, inputs] it is coded. The residual stream is the side
/// of choice, so inputs (axis 1), or outputs (axis 0) where a layer writes to it; the other side
/// when that is no multiple of 256. Nothing when neither is.
std::optional<int> trellis_axis(const std::string& layer, std::int64_t outputs,
                                std::int64_t inputs);

/// Whether a layer is an embedding or a language head by its name; those are never coded.
bool is_vocabulary_layer(const std::string& layer);

}  // namespace espalier::conversion
