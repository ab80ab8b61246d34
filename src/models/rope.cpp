#include "models/rope.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace espalier::models {
namespace {

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

double yarn_magnitude(double factor, double scale = 1) {
  return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
}

YarnRope read_yarn(const ConfigReader& rope, double context) {
  YarnRope yarn{.factor = 1,
                .original_context = rope.number("original_max_position_embeddings", context),
                .beta_fast = rope.number("beta_fast", 32),
                .beta_slow = rope.number("beta_slow", 1),
                .truncate = rope.boolean("truncate", true),
                .magnitude = std::nullopt};
  yarn.factor = rope.number("factor", context / yarn.original_context);
  const double scale = rope.number("mscale", 0);
  const double scale_all = rope.number("mscale_all_dim", 0);
  if (rope.contains("attention_factor")) {
    yarn.magnitude = rope.number("attention_factor");
  } else if (scale != 0 && scale_all != 0) {
    yarn.magnitude = yarn_magnitude(yarn.factor, scale) / yarn_magnitude(yarn.factor, scale_all);
  }
  return yarn;
}

/// LongRoPE has one set of factors up to the original context and another for longer sequences,
/// chosen by the length a sequence reaches in the end. A token's keys may not depend on what comes
/// later, so one set serves all: the short one, with which the context ends where it ends, unless
/// more was asked for.
void read_long_rope(const ConfigReader& config, const ConfigReader& rope, RopeSettings& settings) {
  const double context = config.integer("max_position_embeddings");
  const int original = config.contains("original_max_position_embeddings")
                           ? config.integer("original_max_position_embeddings")
                           : rope.integer("original_max_position_embeddings");
  rope.ignore("original_max_position_embeddings");
  const std::vector<double> long_factors = rope.numbers("long_factor");
  const std::vector<double> short_factors = rope.numbers("short_factor");
  const bool is_long = config.wanted_context().value_or(0) > original;
  const double factor = rope.number("factor", context / original);
  double magnitude = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
  // Phi MoE states them.
  const double short_magnitude = rope.number("short_mscale", magnitude);
  const double long_magnitude = rope.number("long_mscale", magnitude);
  magnitude = is_long ? long_magnitude : short_magnitude;
  settings.scaling = FactorsRope{.factors = is_long ? long_factors : short_factors,
                                 .magnitude = rope.number("attention_factor", magnitude)};
  if (!is_long) {
    settings.context_limit = std::min(original, static_cast<int>(context));
  }
}

void read_scaling(const ConfigReader& config, const ConfigReader& rope, RopeSettings& settings) {
  const std::string type = rope.string("rope_type", rope.string("type", "default"));
  rope.ignore("type");
  // Which frequencies follow a token's row and column in a picture: those of text are all alike.
  rope.ignore("mrope_section");
  rope.ignore("mrope_interleaved");
  if (type == "default" || type == "mrope") {
    return;
  }
  const double context = config.integer("max_position_embeddings");
  if (type == "linear") {
    settings.scaling = LinearRope{.factor = rope.number("factor")};
  } else if (type == "dynamic") {
    if (rope.contains("alpha")) {  // HunYuan: a larger base at every length
      settings.theta_alpha = rope.number("alpha");
    } else {
      // The base grows for sequences longer than the trained context, here all of them alike.
      const double wanted = std::max<double>(config.wanted_context().value_or(0), context);
      settings.theta_alpha = rope.number("factor") * (wanted / context - 1) + 1;
      settings.context_limit = static_cast<int>(wanted);
    }
    for (const char* key : {"factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"}) {
      rope.ignore(key);
    }
  } else if (type == "llama3") {
    settings.scaling =
        Llama3Rope{.factor = rope.number("factor"),
                   .low_freq_factor = rope.number("low_freq_factor"),
                   .high_freq_factor = rope.number("high_freq_factor"),
                   .original_context = rope.number("original_max_position_embeddings")};
  } else if (type == "yarn") {
    settings.scaling = read_yarn(rope, context);
  } else if (type == "proportional") {
    settings.scaling = ProportionalRope{.factor = rope.number("factor", 1)};
  } else if (type == "longrope" || type == "su") {
    read_long_rope(config, rope, settings);
  } else {
    rope.fail("rope_type", "is '" + type + "', which is not supported");
  }
}

std::vector<double> llama3_frequencies(std::vector<double> frequencies, const Llama3Rope& rope) {
  const double long_wave = rope.original_context / rope.low_freq_factor;
  const double short_wave = rope.original_context / rope.high_freq_factor;
  for (double& frequency : frequencies) {
    const double wave = 2 * std::numbers::pi / frequency;
    if (wave > long_wave) {
      frequency /= rope.factor;
    } else if (wave >= short_wave) {
      const double smooth = (rope.original_context / wave - rope.low_freq_factor) /
                            (rope.high_freq_factor - rope.low_freq_factor);
      frequency = (1 - smooth) * frequency / rope.factor + smooth * frequency;
    }
  }
  return frequencies;
}

std::vector<double> yarn_frequencies(std::vector<double> frequencies, const YarnRope& rope,
                                     double theta) {
  const double dims = 2.0 * static_cast<double>(frequencies.size());
  // The dimension whose wavelength fits `rotations` times into the original context.
  const auto dimension = [&](double rotations) {
    return dims * std::log(rope.original_context / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(theta));
  };
  double low = dimension(rope.beta_fast);
  double high = dimension(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1);
  if (low == high) {
    high += 0.001;
  }
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / rope.factor * ramp + frequencies[i] * (1 - ramp);
  }
  return frequencies;
}

/// Heads are far smaller.
constexpr int most_dims = 1 << 16;

/// The models whose heads are rotated in part where their settings say so; others rotate whole
/// heads, whatever `partial_rotary_factor` says.
constexpr auto rotated_in_part = std::to_array<std::string_view>({"bamba",
                                                                  "glm",
                                                                  "glm4",
                                                                  "glm4_moe",
                                                                  "glm4_moe_lite",
                                                                  "glm4v_moe_text",
                                                                  "glm4v_text",
                                                                  "gpt_neox",
                                                                  "mellum",
                                                                  "mimo_v2_flash",
                                                                  "minimax_m2",
                                                                  "nemotron",
                                                                  "persimmon",
                                                                  "phi",
                                                                  "phi3",
                                                                  "qwen3_5_moe_text",
                                                                  "qwen3_5_text",
                                                                  "qwen3_next",
                                                                  "recurrent_gemma",
                                                                  "solar_open",
                                                                  "stablelm"});

/// RoPE's base where a file names none, for models that have another than `read_rope` is told.
struct DefaultTheta {
  std::string_view model_type;
  double theta;
};

constexpr std::array default_thetas = {
    DefaultTheta{"apertus", 12'000'000},   DefaultTheta{"bitnet", 500'000},
    DefaultTheta{"cohere", 500'000},       DefaultTheta{"cwm", 1'000'000},
    DefaultTheta{"flex_olmo", 500'000},    DefaultTheta{"hy_v3", 11'158'840},
    DefaultTheta{"mixtral", 1'000'000},    DefaultTheta{"olmo3", 500'000},
    DefaultTheta{"phimoe", 1'000'000},     DefaultTheta{"smollm3", 2'000'000},
    DefaultTheta{"solar_open", 1'000'000},
};

double default_theta_of(const ConfigReader& config, double otherwise) {
  const auto* found =
      std::ranges::find(default_thetas, config.string("model_type", ""), &DefaultTheta::model_type);
  return found == default_thetas.end() ? otherwise : found->theta;
}

/// Refuses what frequencies cannot be computed from.
RopeSettings checked(RopeSettings settings, const ConfigReader& config) {
  if (!(settings.theta > 0) || !std::isfinite(settings.theta)) {
    config.fail("rope_theta", "is no positive number");
  }
  if (!(settings.partial >= 0 && settings.partial <= 1)) {
    config.fail("partial_rotary_factor", "is not between 0 and 1");
  }
  if (std::holds_alternative<std::monostate>(settings.scaling) &&
      std::ranges::find(rotated_in_part, config.string("model_type", "")) ==
          rotated_in_part.end()) {
    settings.partial = 1;
  }
  return settings;
}

}  // namespace

RopeSettings read_rope(const ConfigReader& config, std::string_view layer_type,
                       double default_theta) {
  default_theta = default_theta_of(config, default_theta);
  RopeSettings settings{.theta = default_theta, .partial = 1, .scaling = {}, .context_limit = {}};
  settings.partial = config.number("partial_rotary_factor", 1);
  if (std::optional<ConfigReader> rope = config.object("rope_parameters")) {
    if (!layer_type.empty() && rope->is_object(layer_type)) {
      rope = rope->object(layer_type);
    }
    settings.theta = rope->number("rope_theta", config.number("rope_theta", default_theta));
    settings.partial = rope->number("partial_rotary_factor", settings.partial);
    read_scaling(config, *rope, settings);
    // Says the same again for older readers, in words that must be known all the same.
    if (const std::optional<ConfigReader> older = config.object("rope_scaling")) {
      RopeSettings same = settings;
      read_scaling(config, *older, same);
    }
    config.ignore_all("rope_scaling");
    return checked(std::move(settings), config);
  }
  settings.theta = config.number("rope_theta", default_theta);
  if (const std::optional<ConfigReader> rope = config.object("rope_scaling")) {
    read_scaling(config, *rope, settings);
  }
  return checked(std::move(settings), config);
}

RopeSettings read_rope(const GgufReader& file, int head_dim, double default_theta) {
  const int dims = file.integer("rope.dimension_count", head_dim);
  if (dims % 2 != 0) file.fail("rope.dimension_count", "is odd, but numbers turn in pairs");
  RopeSettings settings{.theta = file.number("rope.freq_base", default_theta),
                        .partial = static_cast<double>(dims) / head_dim,
                        .context_limit = {}};
  const std::vector<float> factors = file.factors("rope_freqs.weight", dims / 2);
  const std::string type = file.string("rope.scaling.type", "none");
  const double factor = file.number("rope.scaling.factor", file.number("rope.scale_linear", 1));
  const double original =
      file.integer("rope.scaling.original_context_length", file.integer("context_length"));
  const double magnitude = file.number("rope.scaling.attn_factor", 1);
  if (type == "yarn") {
    settings.scaling = YarnRope{.factor = factor,
                                .original_context = original,
                                .beta_fast = file.number("rope.scaling.yarn_beta_fast", 32),
                                .beta_slow = file.number("rope.scaling.yarn_beta_slow", 1),
                                .truncate = true,
                                .magnitude = magnitude * yarn_magnitude(factor)};
  } else if (type != "none" && type != "linear") {
    file.fail("rope.scaling.type", "is '" + type + "', which is not supported");
  } else if (!factors.empty()) {
    settings.scaling =
        FactorsRope{.factors = {factors.begin(), factors.end()}, .magnitude = magnitude};
  } else if (factor != 1 && factor != 0) {
    settings.scaling = LinearRope{.factor = factor};
  }
  return settings;
}

int rotated_dims(const RopeSettings& settings, int head_dim) {
  const double dims = settings.partial * head_dim;
  if (!(dims >= 0 && dims <= most_dims)) {
    throw base::LoadError("rotary embedding of " + std::to_string(settings.partial) +
                          " of a head of " + std::to_string(head_dim) +
                          " elements cannot be computed.");
  }
  return static_cast<int>(dims);
}

RopeDescriptor make_rope(const RopeSettings& settings, int dims, bool interleaved) {
  if (dims < 0 || dims > most_dims) {
    throw base::LoadError("rotary embedding of " + std::to_string(dims) +
                          " elements of a head cannot be computed.");
  }
  const double theta =
      settings.theta * std::pow(settings.theta_alpha, static_cast<double>(dims) / (dims - 2));
  // An odd number of elements rounds up, as it does in the reference.
  std::vector<double> frequencies(static_cast<std::size_t>((dims + 1) / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(theta, -2.0 * static_cast<double>(i) / dims);
  }
  double magnitude = 1;
  std::visit(
      Overloaded{[](const std::monostate&) {},
                 [&](const LinearRope& rope) {
                   for (double& frequency : frequencies) {
                     frequency /= rope.factor;
                   }
                 },
                 [&](const Llama3Rope& rope) {
                   frequencies = llama3_frequencies(std::move(frequencies), rope);
                 },
                 [&](const YarnRope& rope) {
                   frequencies = yarn_frequencies(std::move(frequencies), rope, settings.theta);
                   magnitude = rope.magnitude.value_or(yarn_magnitude(rope.factor));
                 },
                 [&](const FactorsRope& rope) {
                   if (rope.factors.size() < frequencies.size()) {
                     throw base::LoadError("rotary embedding has " +
                                           std::to_string(rope.factors.size()) + " factors for " +
                                           std::to_string(frequencies.size()) + " frequencies.");
                   }
                   for (std::size_t i = 0; i < frequencies.size(); ++i) {
                     frequencies[i] /= rope.factors[i];
                   }
                   magnitude = rope.magnitude;
                 },
                 [&](const ProportionalRope& rope) {
                   const auto rotated = static_cast<std::size_t>(settings.partial * dims) / 2;
                   for (std::size_t i = 0; i < frequencies.size(); ++i) {
                     frequencies[i] = i < rotated ? frequencies[i] / rope.factor : 0;
                   }
                 }},
      settings.scaling);
  if (!std::isfinite(magnitude) || !std::ranges::all_of(frequencies, [](double frequency) {
        return std::isfinite(static_cast<float>(frequency));
      })) {
    throw base::LoadError("the settings of rotary embedding give frequencies that are no numbers.");
  }
  return {.dims = 2 * static_cast<int>(frequencies.size()),
          .interleaved = interleaved,
          .inv_freq = {frequencies.begin(), frequencies.end()},
          .magnitude = static_cast<float>(magnitude)};
}

}  // namespace espalier::models
