#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "generation/request.h"

namespace espalier::cli {

/// Sampling options of `generate` and `chat`; what is not given comes from the verb's defaults.
struct SamplingOptions {
  std::optional<float> temperature;
  std::optional<int> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
};

void add_sampling_options(CLI::App& verb, SamplingOptions& options);

/// `defaults` with what was given on the command line. Without --seed a random one is drawn.
generation::SamplingParameters sampling_parameters(const SamplingOptions& options,
                                                   generation::SamplingParameters defaults);

}  // namespace espalier::cli
