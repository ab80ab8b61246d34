#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/input_text.h"
#include "cli/model_options.h"
#include "cli/verbs.h"
#include "generation/embedder.h"
#include "hub/resolve.h"
#include "server/protocol/parameter.h"

namespace espalier::cli {
namespace {

using server::protocol::Json;

struct EmbedOptions {
  ModelOptions model;
  std::string prompt;
  std::string query;
};

std::vector<std::string> read_texts() {
  const Json input = read_json_input();
  try {
    if (input.is_array()) return input.get<std::vector<std::string>>();
  } catch (const Json::exception&) {
    // Said below.
  }
  throw base::LoadError("standard input must be a JSON array of strings");
}

void run_embed(const EmbedOptions& options) {
  const std::filesystem::path path = hub::resolve(options.model.model).path;
  if (!generation::Embedder::holds(path)) {
    throw base::LoadError(path.string() +
                          ": the model generates text; it gives no embeddings or scores.");
  }
  const std::vector<std::string> texts = read_texts();
  const auto embedder = generation::Embedder::load(path, options.model.engine);
  const auto result =
      options.query.empty()
          ? embedder->embed(std::vector<generation::EmbeddingInput>(texts.begin(), texts.end()),
                            options.prompt)
          : embedder->score(options.query, texts);
  std::cout << server::protocol::dump(Json(result.vectors)) << "\n";
}

}  // namespace

void add_embed(CLI::App& app, Action& action) {
  auto options = std::make_shared<EmbedOptions>();
  CLI::App* verb = app.add_subcommand(
      "embed",
      "Turn a JSON array of strings on standard input into an array of vectors: embeddings, "
      "pooled\n"
      "as the checkpoint says, or a classifier's scores before softmax or sigmoid.");
  add_model_options(*verb, options->model);
  auto* prompt = verb->add_option("--prompt-name", options->prompt,
                                  "which of the checkpoint's prompts goes before the texts");
  verb->add_option("--query", options->query,
                   "score each text as a document for this query (cross-encoders)")
      ->excludes(prompt);
  verb->footer(
      "Example:\n"
      "  echo '[\"a text\", \"another\"]' | espalier embed --model MODEL");
  verb->callback([options, &action] { action = [options] { run_embed(*options); }; });
}

}  // namespace espalier::cli
