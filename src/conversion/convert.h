#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/cancellation.h"
#include "conversion/encoding.h"
#include "conversion/trellis_plan.h"

namespace espalier::conversion {

/// Tensors whose name, or layer name, matches `pattern` (with * and ?) become `setting`. Of several
/// that match, the last holds.
struct Rule {
  std::string pattern;
  std::string setting;
};

struct ConvertOptions {
  std::filesystem::path source;       // a folder or a .gguf file
  std::filesystem::path destination;  // must not exist; `.gguf` exactly when `gguf` is set
  /// Of dense tensors, scales and biases; absent: as in the source, bf16 where it has GGUF blocks.
  std::optional<arrays::StorageType> dtype;
  std::optional<quantization::MlxFormat> quantize;
  bool dequantize = false;
  std::optional<arrays::StorageType> gguf;
  /// Trellis codes for matrices that can have them; all others are as `quantize` says, or affine of
  /// 4 bits. What is coded already outlives an interruption, beside the destination.
  std::optional<TrellisOptions> trellis = {};
  /// Text over which the model is run, so that errors of trellis codes are made up for where inputs
  /// go together.
  std::optional<std::string> calibration = {};
  /// Without such a text, run it over one of the program's own, if it can be run.
  bool calibrate_where_possible = false;
  /// Fold a rotation of the residual stream into the weights.
  std::optional<std::uint32_t> rotation_seed = {};
  /// Without a seed, do so with a seed of the program's own where that is exact.
  bool rotate_where_exact = false;
  std::vector<Rule> rules;
  /// Chosen for single layers before the rules; by layer name.
  std::map<std::string, quantization::MlxFormat> layers;
  std::uint64_t shard_bytes = 5'000'000'000;  // what Hugging Face's tools cut checkpoints into
  base::CancellationToken cancelled;
  std::function<void(int done, int total)> progress = {};  // megavalues
};

struct ConvertReport {
  std::int64_t tensors = 0;
  std::int64_t values = 0;
  std::uint64_t bytes = 0;  // of all stored tensors
  double bits_per_weight = 0;
  std::map<std::string, int> encodings;  // what the tensors became, and how many of them
  std::vector<std::string> notes;        // where the outcome is not what was asked for, and why
};

/// Converts one checkpoint. The destination appears in one step, complete; when the conversion
/// fails or is cancelled, nothing is left. Throws `UsageError` for options that make no sense
/// together or a rule that matches nothing, `LoadError` for a source that cannot be converted,
/// `std::runtime_error` when writing fails, `Interrupted` when cancelled.
ConvertReport convert(const ConvertOptions& options);

}  // namespace espalier::conversion
