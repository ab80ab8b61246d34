#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/cancellation.h"
#include "conversion/convert.h"

namespace espalier::conversion {

struct BudgetOptions {
  std::filesystem::path source;
  /// Mean bits over all parameters, scales and dense tensors included.
  double bits_per_weight = 4.5;
  std::string text;  // what the model is measured on
  base::CancellationToken cancelled;
  std::function<void(int done, int total)> progress = {};  // layers measured
};

/// The affine format of each layer, by its name in Hugging Face's layout, that suits a budget: each
/// layer in turn is quantized alone to few bits, the model is run over parts of the text, and the
/// divergence of its distributions from those of the unquantized model is what the layer's error
/// costs; other widths cost in proportion to their squared error. Loads the model. Throws
/// `LoadError` for a model that cannot be run and `UsageError` for a text that is too short or a
/// budget below the least that is possible. `conversion` says what else the layers and all other
/// tensors become, the group and rules included; its `quantize` is set and affine.
std::map<std::string, quantization::MlxFormat> choose_formats(const BudgetOptions& options,
                                                              const ConvertOptions& conversion);

/// The same for the matrices that `conversion` makes trellis codes of, which are measured with the
/// bits that it gives them: 2 to 4 bits in halves, by what coding loses of normally distributed
/// weights.
std::map<std::string, kernels::TrellisFormat> choose_trellis(const BudgetOptions& options,
                                                             const ConvertOptions& conversion);

}  // namespace espalier::conversion
