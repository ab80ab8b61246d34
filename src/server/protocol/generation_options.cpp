#include "server/protocol/generation_options.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <random>

#include "server/protocol/structured_output.h"

namespace espalier::server::protocol {
namespace {

using Rules = ParameterRules<GenerationOptions>;
using generation::SamplingParameters;

constexpr std::int64_t int_limit = std::numeric_limits<int>::max();
constexpr std::size_t stop_limit = 64;

ParameterRule<GenerationOptions> sampling_number(std::string name, std::string note,
                                                 float SamplingParameters::*field) {
  return mapped<GenerationOptions>(std::move(name), std::move(note),
                                   [field](const Parameter& parameter, GenerationOptions& options) {
                                     options.sampling.*field =
                                         static_cast<float>(parameter.number());
                                   });
}

void set_stop(const Parameter& parameter, GenerationOptions& options) {
  const auto add = [&options](const Parameter& text) {
    options.stop.push_back(text.string());
    if (options.stop.back().empty()) text.refuse("must not be an empty string");
  };
  options.stop.clear();
  if (parameter.json().is_string()) {
    add(parameter);
    return;
  }
  const auto elements = parameter.elements();
  if (elements.size() > stop_limit) {
    parameter.refuse("must not hold more than " + std::to_string(stop_limit) + " strings");
  }
  for (const Parameter& element : elements) add(element);
}

void set_seed(const Parameter& parameter, GenerationOptions& options) {
  const Json& value = parameter.json();
  if (value.is_number_unsigned()) {
    options.seed = value.get<std::uint64_t>();
    return;
  }
  // Integers that fit neither 64 signed nor 64 unsigned bits are read as floating-point numbers.
  constexpr double exact_limit = 9.0e15;
  if (value.is_number_float() && std::abs(value.get<double>()) > exact_limit) {
    parameter.refuse("must be an integer of 64 bits, signed or unsigned");
  }
  const std::int64_t seed = parameter.integer(std::numeric_limits<std::int64_t>::min(),
                                              std::numeric_limits<std::int64_t>::max());
  options.seed = seed == -1 ? std::nullopt : std::optional(static_cast<std::uint64_t>(seed));
}

float read_bias(const Parameter& parameter) {
  if (parameter.json() == Json(false)) return -std::numeric_limits<float>::infinity();
  return static_cast<float>(parameter.number());
}

/// OpenAI's object from id to bias, or llama.cpp's array of [id, bias].
void set_logit_bias(const Parameter& parameter, GenerationOptions& options) {
  if (parameter.json().is_array()) {
    for (const Parameter& pair : parameter.elements()) {
      const auto parts = pair.elements();
      if (parts.size() != 2) pair.refuse("must be a token id and its bias");
      const auto id = static_cast<tokenizer::TokenId>(parts[0].integer(0, int_limit));
      options.sampling.logit_bias[id] = read_bias(parts[1]);
    }
    return;
  }
  for (const auto& [key, bias] : parameter.members()) {
    tokenizer::TokenId id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0) {
      bias.refuse("is named by no token id");
    }
    options.sampling.logit_bias[id] = read_bias(bias);
  }
}

void add_sampling_rules(Rules& rules) {
  rules.push_back(sampling_number("temperature", "0 takes the most likely token",
                                  &SamplingParameters::temperature));
  rules.push_back(sampling_number("top_p", "smallest set of tokens that reaches this probability",
                                  &SamplingParameters::top_p));
  rules.push_back(sampling_number("min_p", "at least this share of the most likely token's",
                                  &SamplingParameters::min_p));
  rules.push_back(mapped<GenerationOptions>(
      "top_k", "the k most likely tokens; 0 and -1: all",
      [](const Parameter& parameter, GenerationOptions& options) {
        const auto top_k = static_cast<int>(parameter.integer(-1, int_limit));
        options.sampling.top_k = top_k < 0 ? 0 : top_k;
      }));
  const std::string repetition = "divides the logits of tokens in prompt and answer";
  rules.push_back(
      sampling_number("repetition_penalty", repetition, &SamplingParameters::repetition_penalty));
  rules.push_back(
      sampling_number("repeat_penalty", repetition, &SamplingParameters::repetition_penalty));
  rules.push_back(sampling_number("presence_penalty", "subtracted once from tokens of the answer",
                                  &SamplingParameters::presence_penalty));
  rules.push_back(sampling_number("frequency_penalty",
                                  "subtracted per occurrence from tokens of the answer",
                                  &SamplingParameters::frequency_penalty));
  rules.push_back(mapped<GenerationOptions>(
      "logit_bias", "token id to bias; false in place of a number bans the token", set_logit_bias));
  rules.push_back(mapped<GenerationOptions>(
      "seed", "the same seed gives the same answer; -1: a random one", set_seed));
}

void add_refused_samplers(Rules& rules) {
  const auto refuse = [&rules](const char* name, const char* note, std::vector<Json> neutral) {
    rules.push_back(refused<GenerationOptions>(name, note, std::move(neutral)));
  };
  refuse("typical_p", "locally typical sampling is not there; 1 turns it off", {1, 1.0});
  refuse("top_n_sigma", "this sampler is not there; -1 turns it off", {-1, -1.0, 0});
  refuse("xtc_probability", "this sampler is not there; 0 turns it off", {0, 0.0});
  refuse("xtc_threshold", "this sampler is not there", {});
  refuse("mirostat", "this sampler is not there; 0 turns it off", {0});
  refuse("mirostat_tau", "mirostat is not there", {});
  refuse("mirostat_eta", "mirostat is not there", {});
  refuse("dynatemp_range", "dynamic temperature is not there; 0 turns it off", {0, 0.0});
  refuse("dynatemp_exponent", "dynamic temperature is not there", {});
  refuse("dry_multiplier", "this penalty is not there; 0 turns it off", {0, 0.0});
  refuse("dry_base", "the DRY penalty is not there", {});
  refuse("dry_allowed_length", "the DRY penalty is not there", {});
  refuse("dry_penalty_last_n", "the DRY penalty is not there", {});
  refuse("dry_sequence_breakers", "the DRY penalty is not there", {});
  refuse("repeat_last_n", "the repetition penalty looks at the whole text; -1 says so", {-1});
  refuse("samplers", "the order of the samplers is fixed", {});
  refuse("min_keep", "only 0", {0});
  refuse("n_probs", "use 'logprobs'", {0});
  refuse("post_sampling_probs", "log-probabilities are those before sampling", {false});
  refuse("id_slot", "there are no slots; -1 leaves the choice to the server", {-1});
  refuse("n_keep", "a context never shifts", {0});
  refuse("n_discard", "a context never shifts", {0});
  refuse("n_indent", "not supported", {0});
  refuse("t_max_predict_ms", "there is no time limit; 0 asks for none", {0});
  refuse("timings_per_token", "timings are not sent", {false});
  refuse("return_progress", "progress is not sent", {false});
  refuse("return_tokens", "token ids are not sent", {false});
  refuse("response_fields", "answers are always whole", {Json::array()});
  refuse("lora", "adapters are not there yet", {Json::array()});
}

std::uint64_t random_seed() {
  static thread_local std::mt19937_64 generator = [] {
    std::random_device device;
    std::seed_seq seeds{device(), device(), device(), device()};
    return std::mt19937_64(seeds);
  }();
  return generator();
}

/// Choice 0 has the request's own seed; the others' are spread from it by SplitMix64's step.
std::uint64_t choice_seed(std::uint64_t seed, int choice) {
  if (choice == 0) return seed;
  std::uint64_t z = seed + 0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(choice);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace

ParameterRules<GenerationOptions> common_rules() {
  Rules rules;
  rules.push_back(mapped<GenerationOptions>(
      "model", "alias, file stem or repo id of the served model, or 'local' or 'default'",
      [](const Parameter& parameter, GenerationOptions& options) {
        options.model = parameter.string();
      }));
  rules.push_back(mapped<GenerationOptions>(
      "n", "choices for each prompt, 1 to 128",
      [](const Parameter& parameter, GenerationOptions& options) {
        options.choices = static_cast<int>(parameter.integer(1, choices_limit));
      }));
  rules.push_back(
      mapped<GenerationOptions>("max_tokens", "most tokens to generate", set_max_tokens));
  rules.push_back(
      mapped<GenerationOptions>("n_predict", "the same as max_tokens; -1: until the context ends",
                                [](const Parameter& parameter, GenerationOptions& options) {
                                  if (parameter.json() != Json(-1))
                                    set_max_tokens(parameter, options);
                                }));
  rules.push_back(mapped<GenerationOptions>("stop", "a string or an array of strings", set_stop));
  rules.push_back(
      mapped<GenerationOptions>("ignore_eos", "go on after the end token",
                                [](const Parameter& parameter, GenerationOptions& options) {
                                  options.ignore_end = parameter.boolean();
                                }));
  add_sampling_rules(rules);
  rules.push_back(accepted<GenerationOptions>("user", "names the caller for the caller's own use"));
  rules.push_back(
      accepted<GenerationOptions>("metadata", "names the request for the caller's own use"));
  rules.push_back(
      accepted<GenerationOptions>("cache_prompt", "a reused prefix never changes an answer"));
  add_refused_samplers(rules);
  for (auto& rule : structured_output_rules()) rules.push_back(std::move(rule));
  return rules;
}

void set_max_tokens(const Parameter& parameter, GenerationOptions& options) {
  const auto value = static_cast<int>(parameter.integer(1, int_limit));
  if (options.max_tokens && *options.max_tokens != value) {
    parameter.refuse("contradicts another limit on generated tokens in the request");
  }
  options.max_tokens = value;
}

PreparedRun prepare_run(const ServedModel& model, const GenerationOptions& options,
                        const std::vector<std::vector<tokenizer::TokenId>>& prompts) {
  if (prompts.size() * static_cast<std::size_t>(options.choices) > choices_limit) {
    throw base::RequestError(
        400, "invalid_value",
        "'n' times the number of prompts must not exceed " + std::to_string(choices_limit) + ".",
        "n");
  }
  const std::uint64_t seed = options.seed.value_or(random_seed());
  PreparedRun run;
  run.stop = options.stop;
  run.constraint = options.constraint;
  for (const auto& prompt : prompts) {
    run.prompt_tokens += static_cast<int>(prompt.size());
    for (int choice = 0; choice < options.choices; ++choice) {
      generation::GenerationRequest request;
      request.prompt = prompt;
      request.sampling = options.sampling;
      request.sampling.seed = choice_seed(seed, choice);
      request.max_tokens = options.max_tokens;
      request.end_tokens = model.text.end_tokens;
      request.ignore_end = options.ignore_end;
      request.logprobs = options.logprobs;
      run.sequences.push_back(std::move(request));
    }
  }
  return run;
}

}  // namespace espalier::server::protocol
