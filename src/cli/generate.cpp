#include <iostream>
#include <memory>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/input_text.h"
#include "cli/local_generation.h"
#include "cli/model_options.h"
#include "cli/option_checks.h"
#include "cli/verbs.h"
#include "server/protocol/chat_prompt.h"

namespace espalier::cli {
namespace {

using server::protocol::Json;

struct GenerateOptions {
  ModelOptions model;
  std::string prompt;
  bool raw = false;
  int max_tokens = 256;
  float temperature = 0.0F;
  std::optional<std::uint64_t> seed;
  GrammarOptions grammar;
  bool json = false;
};

std::string_view finish_name(generation::FinishReason finish) {
  switch (finish) {
    case generation::FinishReason::length:
      return "length";
    case generation::FinishReason::cancelled:
      return "cancelled";
    default:
      return "stop";
  }
}

std::vector<tokenizer::TokenId> encode_prompt(const server::protocol::ServedModel& model,
                                              const GenerateOptions& options) {
  if (options.raw) {
    return model.text.tokenizer->encode(options.prompt, tokenizer::SpecialTokens::add);
  }
  if (!model.chat_template) {
    throw base::LoadError(options.model.model +
                          " has no chat template: add --raw to continue the prompt as it is");
  }
  server::protocol::ChatInput chat;
  chat.messages.push_back({{"role", "user"}, {"content", options.prompt}});
  return encode_pieces(*model.text.tokenizer, render_chat(model, chat));
}

double rate(std::size_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

void print_json(const Generated& generated, std::size_t prompt_tokens) {
  const std::size_t decoded = generated.tokens.empty() ? 0 : generated.tokens.size() - 1;
  const Json result = {{"text", generated.text},
                       {"tokens", generated.tokens},
                       {"prompt_tokens", prompt_tokens},
                       {"finish_reason", finish_name(generated.finish)},
                       {"timings",
                        {{"prompt_s", generated.prompt_seconds},
                         {"prompt_tokens_per_s", rate(prompt_tokens, generated.prompt_seconds)},
                         {"generation_s", generated.generation_seconds},
                         {"generated_tokens_per_s", rate(decoded, generated.generation_seconds)}}}};
  std::cout << server::protocol::dump(result) << "\n";
}

void run_generate(const GenerateOptions& options) {
  require_utf8(options.prompt, "--prompt");
  const auto model = load_served_model(hub::resolve(options.model.model), options.model);
  auto prompt = encode_prompt(*model, options);
  const std::size_t prompt_tokens = prompt.size();
  generation::SamplingParameters sampling = model->text.sampling_defaults;
  sampling.temperature = options.temperature;
  auto request =
      make_request(*model, std::move(prompt), sampling, options.seed, options.max_tokens);
  request.constraint = compile_grammar(*model, options.grammar);
  const base::CancellationToken cancellation = request.cancellation;
  const Generated generated = generate(*model, std::move(request), [&](std::string_view text) {
    if (!options.json && !(std::cout << text << std::flush)) cancellation.cancel();
  });
  if (options.json) {
    print_json(generated, prompt_tokens);
  } else {
    std::cout << "\n";
  }
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App* verb = app.add_subcommand("generate", "Answer one prompt, streaming the text");
  add_model_options(*verb, options->model);
  add_engine_options(*verb, options->model);
  verb->add_option("--prompt", options->prompt, "what to answer")->required();
  verb->add_flag("--raw", options->raw, "continue the prompt as it is, without the chat template");
  verb->add_option("--max-tokens", options->max_tokens, "most tokens to generate")
      ->check(whole_number(1))
      ->capture_default_str();
  verb->add_option("--temperature", options->temperature, "0 takes the most likely token")
      ->check(real_number(0, most_temperature))
      ->capture_default_str();
  verb->add_option("--seed", options->seed, "the same seed gives the same text")
      ->check(seed_number());
  add_grammar_options(*verb, options->grammar);
  verb->add_flag("--json", options->json,
                 "print {text, tokens, prompt_tokens, finish_reason, timings}");
  verb->footer(
      "Examples:\n"
      "  espalier generate --model MODEL --prompt \"Why is the sky blue?\"\n"
      "  espalier generate --model MODEL --raw --prompt \"1, 2, 3,\" --max-tokens 16 --json");
  verb->callback([options, &action] { action = [options] { run_generate(*options); }; });
}

}  // namespace espalier::cli
