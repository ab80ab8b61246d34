#include <iostream>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "cli/model_options.h"
#include "cli/sampling_options.h"
#include "cli/verbs.h"
#include "server/protocol/chat_prompt.h"

namespace espalier::cli {
namespace {

struct GenerateOptions {
  ModelOptions model;
  SamplingOptions sampling;
  std::string prompt;
  bool raw = false;
  bool json = false;
  int max_tokens = 256;
};

/// The prompt's ids: through the chat template as one user message, or as plain text.
std::vector<tokenizer::TokenId> encode_prompt(const server::protocol::ServedModel& model,
                                              const GenerateOptions& options) {
  if (options.raw || !model.chat_template) {
    return model.text.tokenizer->encode(options.prompt, tokenizer::SpecialTokens::add);
  }
  server::protocol::ChatInput input;
  input.messages.push_back({{"role", "user"}, {"content", options.prompt}});
  return server::protocol::encode_pieces(*model.text.tokenizer,
                                         server::protocol::render_chat(model, input));
}

nlohmann::ordered_json to_json(const Answer& answer) {
  const double decoded = static_cast<double>(answer.tokens.size()) - 1.0;
  return {{"text", answer.text},
          {"tokens", answer.tokens},
          {"prompt_tokens", answer.prompt_tokens},
          {"finish_reason", finish_reason_name(answer.finish)},
          {"timings",
           {{"prefill_seconds", answer.timings.prefill_seconds},
            {"decode_seconds", answer.timings.decode_seconds},
            {"prefill_tokens_per_s", answer.prompt_tokens / answer.timings.prefill_seconds},
            {"decode_tokens_per_s", answer.timings.decode_seconds > 0.0
                                        ? nlohmann::json(decoded / answer.timings.decode_seconds)
                                        : nlohmann::json()}}}};
}

int generate(const GenerateOptions& options) {
  generation::EngineOptions engine = engine_options(options.model);
  engine.max_running = 1;
  const auto model = load_with_engine(hub::resolve(options.model.model), engine);

  generation::GenerationRequest request;
  request.prompt = encode_prompt(*model, options);
  generation::SamplingParameters defaults = model->text.sampling_defaults;
  defaults.temperature = 0.0F;
  request.sampling = sampling_parameters(options.sampling, defaults);
  request.max_tokens = options.max_tokens;
  request.end_tokens = model->text.end_tokens;

  const Answer answer =
      generate_answer(*model, std::move(request), options.sampling.stop, [&](const auto& text) {
        if (!options.json) std::cout << text << std::flush;
      });
  if (options.json) {
    std::cout << to_json(answer).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  std::cout << std::endl;
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand(
      "generate", "Answer one prompt, streaming the text. Greedy unless --temperature is given.");
  const auto options = std::make_shared<GenerateOptions>();
  add_model_options(*verb, options->model);
  verb->add_option("--prompt,-p", options->prompt, "The user's message")->required();
  verb->add_flag("--raw", options->raw, "Continue the prompt as it is, without the chat template");
  verb->add_option("--max-tokens", options->max_tokens, "Most tokens to generate")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->add_flag("--json", options->json,
                 "Print {text, tokens, prompt_tokens, finish_reason, timings}");
  add_sampling_options(*verb, options->sampling);
  verb->callback([options, &action] { action = [options] { return generate(*options); }; });
}

}  // namespace espalier::cli
