#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/model_options.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "evaluation/bench.h"
#include "evaluation/logits.h"
#include "evaluation/perplexity.h"
#include "evaluation/token_rows.h"
#include "generation/bundle.h"

namespace espalier::cli {
namespace {

using generation::KvType;

const std::map<std::string, KvType> kv_types = {
    {"f16", KvType::f16}, {"bf16", KvType::bf16}, {"f32", KvType::f32}};

void add_kv_type(CLI::App& verb, KvType& type) {
  verb.add_option("--kv-type", type, "How keys and values are kept: f16, bf16 or f32")
      ->transform(CLI::CheckedTransformer(kv_types))
      ->default_str(type == KvType::f32 ? "f32" : "f16");
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path)) {
    throw base::LoadError("The text " + path + " cannot be read.");
  }
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct LogitsVerb {
  ModelOptions model;
  std::string tokens;
  std::string output;
  evaluation::LogitsOptions options;
};

int run_logits(LogitsVerb& verb) {
  const auto rows = evaluation::read_token_rows(verb.tokens);
  const auto model = load_weights(verb.model);
  verb.options.progress = progress_line("row");
  evaluation::write_logits(*model, rows, verb.output, verb.options);
  return 0;
}

struct PerplexityVerb {
  ModelOptions model;
  std::string text;
  bool json = false;
  evaluation::PerplexityOptions options;
};

int run_perplexity(PerplexityVerb& verb) {
  const std::string text = read_text(verb.text);
  const auto bundle = generation::load_text_bundle(hub::resolve(verb.model.model).path);
  const auto model = load_weights(verb.model);
  verb.options.progress = progress_line("chunk");
  const auto result = evaluation::perplexity(*model, *bundle.tokenizer, text, verb.options);
  if (verb.json) {
    std::cout << nlohmann::ordered_json{{"perplexity", result.perplexity},
                                        {"standard_error", result.standard_error},
                                        {"tokens", result.tokens}}
              << std::endl;
  } else {
    std::cout << "perplexity " << std::fixed << std::setprecision(4) << result.perplexity << " +/- "
              << result.standard_error << " over " << result.tokens << " tokens" << std::endl;
  }
  return 0;
}

struct BenchVerb {
  ModelOptions model;
  bool json = false;
  evaluation::BenchOptions options;
};

int run_bench(BenchVerb& verb) {
  const auto model = load_weights(verb.model);
  verb.options.progress = progress_line("measurement");
  const auto result = evaluation::bench(*model, verb.options);
  if (verb.json) {
    std::cout << evaluation::to_json(result).dump() << std::endl;
    return 0;
  }
  std::cout << std::fixed << std::setprecision(1);
  if (!result.prefill.empty()) {
    std::cout << "prefill " << verb.options.prompt << " at depth " << verb.options.depth << ": "
              << evaluation::median(result.prefill) << " tokens/s\n";
  }
  if (!result.decode.empty()) {
    std::cout << "decode " << verb.options.gen << " at depth " << verb.options.depth << ": "
              << evaluation::median(result.decode) << " tokens/s\n";
  }
  return 0;
}

}  // namespace

void add_logits(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand(
      "logits", "Logits of token rows, written as the tensor 'logits' [B, T, V] in float32.");
  const auto options = std::make_shared<LogitsVerb>();
  add_model_options(*verb, options->model);
  verb->add_option("--tokens", options->tokens, "JSON file: an array of equally long id arrays")
      ->required();
  verb->add_option("--output,-o", options->output, "The .safetensors file to write")->required();
  verb->add_option("--chunk", options->options.chunk, "Tokens per forward pass")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add_kv_type(*verb, options->options.kv_type);
  verb->callback([options, &action] { action = [options] { return run_logits(*options); }; });
}

void add_perplexity(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("perplexity",
                                      "How well the model predicts a text, by llama.cpp's method.");
  const auto options = std::make_shared<PerplexityVerb>();
  add_model_options(*verb, options->model);
  verb->add_option("--text", options->text, "The text file")->required();
  verb->add_option("--context", options->options.context, "Tokens per chunk")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->add_flag("--mlx-lm", options->options.mlx_lm, "mlx-lm's method instead");
  verb->add_flag("--json", options->json, "Print {perplexity, standard_error, tokens}");
  add_kv_type(*verb, options->options.kv_type);
  verb->callback([options, &action] { action = [options] { return run_perplexity(*options); }; });
}

void add_bench(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("bench", "Speed of prefill and decode, measured as llama-bench does.");
  const auto options = std::make_shared<BenchVerb>();
  add_model_options(*verb, options->model);
  verb->add_option("--prompt", options->options.prompt, "Tokens of the prefill (0: none)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--gen", options->options.gen, "Tokens to decode (0: none)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--depth", options->options.depth, "Tokens that stand before either")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_option("--repeat", options->options.repeat, "Measurements of each")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->add_flag("--json", options->json,
                 "Print {prefill_tokens_per_s, decode_tokens_per_s, ...} with the samples");
  add_kv_type(*verb, options->options.kv_type);
  verb->callback([options, &action] { action = [options] { return run_bench(*options); }; });
}

}  // namespace espalier::cli
