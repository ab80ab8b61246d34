#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "models/config_reader.h"
#include "models/descriptor.h"
#include "models/gguf_reader.h"

namespace espalier::models {

/// Positions divided by `factor`.
struct LinearRope {
  double factor;
};

/// Llama 3.1: long wavelengths divided by `factor`, short ones kept, a ramp between.
struct Llama3Rope {
  double factor;
  double low_freq_factor;
  double high_freq_factor;
  double original_context;
};

/// YaRN (Peng et al. 2023, section 3.2), with DeepSeek's two-part magnitude.
struct YarnRope {
  double factor;
  double original_context;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;
  std::optional<double> magnitude = {};  // absent: from the factor
};

/// Frequencies divided one by one; [dims/2].
struct FactorsRope {
  std::vector<double> factors;
  double magnitude = 1;
};

/// Frequencies as if all of a head were rotated, of which only the first share is (Gemma 4).
struct ProportionalRope {
  double factor = 1;
};

/// What a checkpoint says about rotary embedding.
struct RopeSettings {
  double theta = 10000;
  double partial = 1;  // share of each head that is rotated
  std::variant<std::monostate, LinearRope, Llama3Rope, YarnRope, FactorsRope, ProportionalRope>
      scaling = {};
  double theta_alpha = 1;  // theta is multiplied by its power dims / (dims - 2)
  /// Where the context ends with these frequencies.
  std::optional<int> context_limit = {};
};

/// Reads `rope_parameters` (of `layer_type`, where the file has one set a type), or the older
/// `rope_theta` and `rope_scaling`. `default_theta` holds where the file names none.
RopeSettings read_rope(const ConfigReader& config, std::string_view layer_type = {},
                       double default_theta = 10000);

/// Reads `rope.dimension_count`, `rope.freq_base`, `rope.scaling.*` and the factors tensor.
RopeSettings read_rope(const GgufReader& file, int head_dim, double default_theta = 10000);

/// How many elements of each head are rotated.
int rotated_dims(const RopeSettings& settings, int head_dim);

/// The frequencies for `dims` rotated elements of each head.
RopeDescriptor make_rope(const RopeSettings& settings, int dims, bool interleaved = false);

}  // namespace espalier::models
