#pragma once

#include <optional>
#include <vector>

#include "quantization/trellis_encoder.h"

namespace espalier::quantization {

/// L of a matrix H = L D L^T of second moments of a linear map's inputs, D and L in blocks of
/// `block` inputs, those of L's diagonal being unit matrices: by how much an error at one input is
/// made up for at those before it (block LDLQ, arXiv 2406.11235).
struct FeedbackFactor {
  int inputs;
  int block;
  std::vector<float> lower;  // [inputs, inputs]; what lies in or above the diagonal is not used
  std::vector<float> importance;  // [inputs], D's diagonal over its mean: what errors there cost
};

/// Inputs that are coded without feedback among them: a trellis block where codes run along the
/// inputs (axis 1), one where they run along the outputs.
int feedback_block(const kernels::TrellisFormat& format);

/// Factors `moments` [inputs, inputs] over their mean diagonal, 0.01 to 100 added to the diagonal:
/// the least of five powers of ten that gives a factor of moderate numbers. Nothing when none does,
/// or the moments are zero or not finite. Runs on the compute pool.
std::optional<FeedbackFactor> factor_moments(std::vector<float> moments, int inputs, int block);

/// `encode_trellis` with errors fed back, from the last inputs to the first. Scales are those that
/// suit the weights alone; in rows along the inputs errors count by the inputs' importance. Nothing
/// when the weights with what is fed back to them outgrow the weights alone 32 times over, which
/// makes them worse.
std::optional<TrellisCodes> encode_trellis_with_feedback(const float* values, int rows, int columns,
                                                         const kernels::TrellisFormat& format,
                                                         TrellisScale scale,
                                                         const FeedbackFactor& factor);

}  // namespace espalier::quantization
