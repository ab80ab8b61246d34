#include "cli/sampling_options.h"

#include <random>

namespace espalier::cli {

void add_sampling_options(CLI::App& verb, SamplingOptions& options) {
  verb.add_option("--temperature", options.temperature, "0 takes the likeliest token each time")
      ->check(CLI::Range(0.0, 100.0));
  verb.add_option("--top-k", options.top_k, "Only the K likeliest tokens (0: all)")
      ->check(CLI::NonNegativeNumber);
  verb.add_option("--top-p", options.top_p, "Only the likeliest tokens that together reach P")
      ->check(CLI::Range(0.0, 1.0));
  verb.add_option("--min-p", options.min_p, "Only tokens at least P times as likely as the best")
      ->check(CLI::Range(0.0, 1.0));
  verb.add_option("--repetition-penalty", options.repetition_penalty,
                  "Divides the odds of tokens that were used (1: off)")
      ->check(CLI::PositiveNumber);
  verb.add_option("--seed", options.seed, "The same seed gives the same answer");
  verb.add_option("--stop", options.stop, "Text that ends the answer (repeatable)");
}

generation::SamplingParameters sampling_parameters(const SamplingOptions& options,
                                                   generation::SamplingParameters defaults) {
  if (options.temperature) defaults.temperature = *options.temperature;
  if (options.top_k) defaults.top_k = *options.top_k;
  if (options.top_p) defaults.top_p = *options.top_p;
  if (options.min_p) defaults.min_p = *options.min_p;
  if (options.repetition_penalty) defaults.repetition_penalty = *options.repetition_penalty;
  defaults.seed = options.seed ? *options.seed : std::random_device()();
  return defaults;
}

}  // namespace espalier::cli
