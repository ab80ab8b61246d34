#include "evaluation/perplexity.h"

#include <iostream>
#include <memory>

#include "cli/input_text.h"
#include "cli/offline_model.h"
#include "cli/option_checks.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "generation/bundle.h"
#include "server/protocol/parameter.h"

namespace espalier::cli {
namespace {

struct PerplexityVerbOptions {
  ModelOptions model;
  std::string text;
  evaluation::PerplexityOptions perplexity;
  bool json = false;
};

void run_perplexity(PerplexityVerbOptions options) {
  const std::string text = require_utf8(read_file(options.text), options.text);
  const auto bundle = generation::load_text_bundle(hub::resolve(options.model.model).path);
  options.model.engine.context = options.perplexity.context;
  const auto model = load_offline_model(options.model);
  options.perplexity.kv_type = options.model.engine.kv_type;
  options.perplexity.progress = show_progress("chunk");
  const evaluation::PerplexityResult result =
      evaluation::perplexity(*model, *bundle.tokenizer, text, options.perplexity);
  if (options.json) {
    const server::protocol::Json output = {{"perplexity", result.perplexity},
                                           {"standard_error", result.standard_error},
                                           {"tokens", result.tokens}};
    std::cout << server::protocol::dump(output) << "\n";
  } else {
    std::cout << "perplexity " << result.perplexity << " +/- " << result.standard_error << " over "
              << result.tokens << " tokens\n";
  }
}

}  // namespace

void add_perplexity(CLI::App& app, Action& action) {
  auto options = std::make_shared<PerplexityVerbOptions>();
  CLI::App* verb = app.add_subcommand("perplexity", "Measure a model on a text: lower is better");
  add_model_options(*verb, options->model);
  verb->add_option("--text", options->text, "file with the text")->required();
  verb->add_option("--context", options->perplexity.context, "tokens in each chunk")
      ->check(whole_number(1))
      ->capture_default_str();
  verb->add_flag("--mlx-lm", options->perplexity.mlx_lm, "mlx-lm's method in place of llama.cpp's");
  verb->add_flag("--json", options->json, "print {perplexity, standard_error, tokens}");
  verb->footer(
      "Example:\n"
      "  espalier perplexity --model MODEL --text FILE");
  verb->callback([options, &action] { action = [options] { run_perplexity(*options); }; });
}

}  // namespace espalier::cli
