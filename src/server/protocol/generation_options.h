#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generation/request.h"
#include "server/protocol/generation_run.h"
#include "server/protocol/parameter.h"

namespace espalier::server::protocol {

/// What every dialect can say about a generation, beside the prompt.
struct GenerationOptions {
  std::string model;
  generation::SamplingParameters sampling;  // starts as the model's defaults
  std::optional<std::uint64_t> seed;        // absent: a random one
  std::optional<int> max_tokens;            // absent: until the context ends
  std::vector<std::string> stop;
  bool ignore_end = false;
  int logprobs = -1;  // as in generation::GenerationRequest
  int choices = 1;
  std::optional<RequestedGrammar> constraint;  // what the text has to follow
};

/// Most sequences that one request may ask for.
inline constexpr int choices_limit = 128;
/// Most candidates that a request may ask for with each token.
inline constexpr int top_logprobs_limit = 20;

/// The rules for parameters that carry the same name in several dialects: sampling, penalties,
/// `stop`, `seed`, `n`, `model`, and the samplers of llama.cpp that are refused.
ParameterRules<GenerationOptions> common_rules();

/// Sets the limit on generated tokens; refuses a second, different one.
void set_max_tokens(const Parameter& parameter, GenerationOptions& options);

/// Each prompt `options.choices` times, ready for the engine; choice j of a prompt has its own
/// random numbers, which follow from seed and j.
PreparedRun prepare_run(const ServedModel& model, const GenerationOptions& options,
                        const std::vector<std::vector<tokenizer::TokenId>>& prompts);

}  // namespace espalier::server::protocol
