#include "evaluation/fit.h"

#include <iomanip>
#include <iostream>
#include <memory>

#include "cli/option_checks.h"
#include "cli/verbs.h"
#include "hub/resolve.h"
#include "server/protocol/parameter.h"

namespace espalier::cli {
namespace {

using server::protocol::Json;

struct FitVerbOptions {
  std::string model;
  double memory_gb = 0;
  evaluation::FitOptions fit;
  bool json = false;
};

Json to_json(const evaluation::FitReport& report) {
  Json state = Json::object();
  for (const auto& [format, entry] : report.state) {
    state[format] = {{"bytes_per_token", entry.bytes_per_token},
                     {"largest_context", entry.largest_context},
                     {"bytes_of_largest_context", entry.bytes_of_largest}};
  }
  return {{"family", report.model.family},
          {"format", report.model.container},
          {"parameters", report.model.parameters},
          {"bits_per_weight", report.model.bits_per_weight},
          {"weight_bytes", report.model.weight_bytes},
          {"repacked_bytes", report.repacked},
          {"weight_types", report.model.bytes_by_type},
          {"context", report.context},
          {"kv", state},
          {"recurrent_bytes_per_request", report.state_per_request},
          {"workspace_bytes", report.workspace},
          {"memory_bytes", report.memory},
          {"fits", report.fits}};
}

std::string megabytes(std::uint64_t bytes) {
  return std::to_string((bytes + 999'999) / 1'000'000) + " MB";
}

void print(const evaluation::FitReport& report) {
  std::cout << report.model.family << ", " << report.model.parameters / 1'000'000
            << " million parameters of " << std::fixed << std::setprecision(2)
            << report.model.bits_per_weight << " bits\n"
            << "weights     " << megabytes(report.model.weight_bytes) << " in the file, "
            << megabytes(report.repacked)
            << " in memory once repacked (--no-repack: they stay in the file's pages)\n"
            << "workspace   " << megabytes(report.workspace) << "\n"
            << "memory      " << megabytes(report.memory) << " may be taken\n";
  for (const auto& [format, state] : report.state) {
    std::cout << "keys and values in " << format << ": " << state.bytes_per_token
              << " bytes a token, ";
    if (state.largest_context == 0) {
      std::cout << "nothing fits\n";
    } else {
      std::cout << "context up to " << state.largest_context << " of " << report.context << ", "
                << megabytes(state.bytes_of_largest) << "\n";
    }
  }
  std::cout << (report.fits ? "It fits.\n" : "It does not fit.\n");
}

void run_fit(FitVerbOptions options) {
  options.fit.memory = static_cast<std::uint64_t>(options.memory_gb * 1e9);
  const auto report = evaluation::fit(hub::resolve(options.model).path, options.fit);
  if (options.json) {
    std::cout << server::protocol::dump(to_json(report)) << "\n";
  } else {
    print(report);
  }
}

}  // namespace

void add_fit(CLI::App& app, Action& action) {
  auto options = std::make_shared<FitVerbOptions>();
  CLI::App* verb =
      app.add_subcommand("fit", "Say what a model needs to run here, without loading it");
  verb->add_option("--model", options->model, "folder, .gguf file, repo id or alias")->required();
  verb->add_option("--memory", options->memory_gb,
                   "gigabytes that may be taken (default: what this machine has left)")
      ->check(real_number(0.001, 1e6));
  verb->add_option("--requests", options->fit.running, "requests at once, each with its context")
      ->check(whole_number(1))
      ->capture_default_str();
  verb->add_option("--prefill-chunk", options->fit.prefill_chunk,
                   "prompt tokens computed in one step")
      ->check(whole_number(1))
      ->capture_default_str();
  verb->add_flag("--json", options->json, "print it as one object");
  verb->footer(
      "Example:\n"
      "  espalier fit --model MODEL");
  verb->callback([options, &action] { action = [options] { run_fit(*options); }; });
}

}  // namespace espalier::cli
