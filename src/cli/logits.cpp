#include "evaluation/logits.h"

#include <memory>

#include "cli/offline_model.h"
#include "cli/option_checks.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "evaluation/token_rows.h"

namespace espalier::cli {
namespace {

struct LogitsVerbOptions {
  ModelOptions model;
  std::string tokens;
  std::string output;
  evaluation::LogitsOptions logits;
};

void run_logits(LogitsVerbOptions options) {
  const auto rows = evaluation::read_token_rows(options.tokens);
  options.model.engine.context = static_cast<int>(rows.front().size());
  const auto model = load_offline_model(options.model);
  options.logits.kv_type = options.model.engine.kv_type;
  options.logits.progress = show_progress("row");
  evaluation::write_logits(*model, rows, options.output, options.logits);
}

}  // namespace

void add_logits(CLI::App& app, Action& action) {
  auto options = std::make_shared<LogitsVerbOptions>();
  // Logits are compared with references: keys and values keep their full precision unless asked.
  options->model.engine.kv_type = options->logits.kv_type;
  CLI::App* verb = app.add_subcommand(
      "logits", "Write the logits of token rows to a safetensors file: `logits`, f32 [B, T, V]");
  add_model_options(*verb, options->model);
  verb->add_option("--tokens", options->tokens, "JSON file: an array of equally long id arrays")
      ->required();
  verb->add_option("--output", options->output, "safetensors file to write")->required();
  verb->add_option("--chunk", options->logits.chunk,
                   "tokens computed in one step; results do not depend on it")
      ->check(whole_number(1))
      ->capture_default_str();
  verb->footer(
      "Examples:\n"
      "  echo '[[1, 2, 3]]' > ids.json\n"
      "  espalier logits --model MODEL --tokens ids.json --output logits.safetensors");
  verb->callback([options, &action] { action = [options] { run_logits(*options); }; });
}

}  // namespace espalier::cli
