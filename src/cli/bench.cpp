#include "evaluation/bench.h"

#include <iomanip>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "cli/input_text.h"
#include "cli/offline_model.h"
#include "cli/option_checks.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "evaluation/quality.h"
#include "generation/bundle.h"

namespace espalier::cli {
namespace {

struct BenchVerbOptions {
  ModelOptions model;
  evaluation::BenchOptions bench;
  std::string quality = {};  // a file with text; empty: speed is measured
  bool json = false;
};

void print_rate(const char* what, int tokens, const std::vector<double>& samples) {
  if (samples.empty()) return;
  std::cout << std::left << std::setw(9) << what << std::right << std::setw(6) << tokens
            << " tokens  " << std::fixed << std::setprecision(1) << evaluation::median(samples)
            << " tokens/s (median of " << samples.size() << ")\n";
}

void run_quality(BenchVerbOptions options) {
  const std::string text = require_utf8(read_file(options.quality), options.quality);
  const auto bundle = generation::load_text_bundle(hub::resolve(options.model.model).path);
  const auto tokens = bundle.tokenizer->encode(text, tokenizer::SpecialTokens::add);
  evaluation::QualityOptions quality;
  quality.kv_type = options.model.engine.kv_type;
  options.model.engine.context = quality.context;
  options.model.engine.activations = "f32";
  const auto exact = load_offline_model(options.model);
  nlohmann::ordered_json output;
  for (const char* activations : {"int8", "int15"}) {
    options.model.engine.activations = activations;
    const auto other = load_offline_model(options.model);
    quality.progress = show_progress(activations);
    const evaluation::Quality result = evaluation::compare(*exact, *other, tokens, quality);
    if (options.json) {
      output[activations] = {{"kl", result.divergence},
                             {"largest_kl", result.largest},
                             {"same_top", result.same_top},
                             {"positions", result.positions}};
      continue;
    }
    std::cout << std::left << std::setw(7) << activations << std::right << std::setprecision(3)
              << "KL " << result.divergence << " nats (largest " << result.largest
              << "), same likeliest token at " << 100 * result.same_top << " % of "
              << result.positions << " positions\n";
  }
  if (options.json) std::cout << output.dump() << "\n";
}

void run_bench(BenchVerbOptions options) {
  if (!options.quality.empty()) {
    run_quality(std::move(options));
    return;
  }
  const auto model = load_offline_model(options.model);
  options.bench.kv_type = options.model.engine.kv_type;
  options.bench.progress = show_progress("run");
  const evaluation::BenchResult result = evaluation::bench(*model, options.bench);
  if (options.json) {
    std::cout << evaluation::to_json(result).dump() << "\n";
    return;
  }
  print_rate("prefill", options.bench.prompt, result.prefill);
  print_rate("decode", options.bench.gen, result.decode);
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto options = std::make_shared<BenchVerbOptions>();
  evaluation::BenchOptions& bench = options->bench;
  CLI::App* verb = app.add_subcommand(
      "bench", "Measure prefill and decode speed on random tokens, as llama-bench does");
  add_model_options(*verb, options->model);
  verb->add_option("--prompt", bench.prompt, "tokens of the prefill; 0: do not measure it")
      ->check(whole_number(0))
      ->capture_default_str();
  verb->add_option("--gen", bench.gen, "tokens decoded one by one; 0: do not measure it")
      ->check(whole_number(0))
      ->capture_default_str();
  verb->add_option("--depth", bench.depth, "tokens that already stand before either")
      ->check(whole_number(0))
      ->capture_default_str();
  verb->add_option("--repeat", bench.repeat, "times that each is measured")
      ->check(whole_number(1))
      ->capture_default_str();
  verb->add_option("--prefill-chunk", bench.chunk, "prompt tokens computed in one step")
      ->check(whole_number(1))
      ->capture_default_str();
  verb->add_option("--quality", options->quality,
                   "file with text: measure, in place of speed, how far the model's distributions "
                   "are with each type of activations from those with f32")
      ->excludes("--activations");
  verb->add_flag("--json", options->json, "print medians, samples and settings");
  verb->footer(
      "Examples:\n"
      "  espalier bench --model MODEL --prompt 512 --gen 128\n"
      "  espalier bench --model MODEL --quality TEXT");
  verb->callback([options, &action] { action = [options] { run_bench(*options); }; });
}

}  // namespace espalier::cli
