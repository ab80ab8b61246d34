#include "evaluation/bench.h"

#include <iomanip>
#include <iostream>
#include <memory>

#include <nlohmann/json.hpp>

#include "cli/offline_model.h"
#include "cli/option_checks.h"
#include "cli/progress.h"
#include "cli/verbs.h"

namespace espalier::cli {
namespace {

struct BenchVerbOptions {
  ModelOptions model;
  evaluation::BenchOptions bench;
  bool json = false;
};

void print_rate(const char* what, int tokens, const std::vector<double>& samples) {
  if (samples.empty()) return;
  std::cout << std::left << std::setw(9) << what << std::right << std::setw(6) << tokens
            << " tokens  " << std::fixed << std::setprecision(1) << evaluation::median(samples)
            << " tokens/s (median of " << samples.size() << ")\n";
}

void run_bench(BenchVerbOptions options) {
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
  verb->add_flag("--json", options->json, "print medians, samples and settings");
  verb->footer(
      "Example:\n"
      "  espalier bench --model MODEL --prompt 512 --gen 128");
  verb->callback([options, &action] { action = [options] { run_bench(*options); }; });
}

}  // namespace espalier::cli
