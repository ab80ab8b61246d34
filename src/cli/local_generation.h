#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "generation/request.h"
#include "server/protocol/served_model.h"

namespace espalier::cli {

/// What one request generated on this machine's own terminal.
struct Generated {
  std::string text;
  std::vector<tokenizer::TokenId> tokens;  // end token included
  generation::FinishReason finish = generation::FinishReason::none;
  double prompt_seconds = 0;      // until the first token
  double generation_seconds = 0;  // from the first token to the last
};

/// Runs `request` and waits for it, passing text on as it comes. A cancelled request ends with what
/// it has and `FinishReason::cancelled`. Throws the engine's `RequestError`, or
/// `std::runtime_error` when it fails.
Generated generate(const server::protocol::ServedModel& model,
                   generation::GenerationRequest request,
                   const std::function<void(std::string_view)>& on_text);

/// The request for a prompt with the model's end tokens; `seed` is drawn when it is absent.
generation::GenerationRequest make_request(const server::protocol::ServedModel& model,
                                           std::vector<tokenizer::TokenId> prompt,
                                           const generation::SamplingParameters& sampling,
                                           std::optional<std::uint64_t> seed,
                                           std::optional<int> max_tokens);

/// The options by which a text's grammar is given; at most one of them.
struct GrammarOptions {
  std::string schema_file;
  std::string grammar_file;
  std::string regex;
};

void add_grammar_options(CLI::App& verb, GrammarOptions& options);

/// The compiled grammar, null when none is given. Throws `UsageError` naming the file that cannot
/// be read, `RequestError` saying what is wrong with the grammar.
std::shared_ptr<const grammar::Constraint> compile_grammar(
    const server::protocol::ServedModel& model, const GrammarOptions& options);

}  // namespace espalier::cli
