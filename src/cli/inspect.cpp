#include "evaluation/inspect.h"

#include <iostream>
#include <memory>
#include <string>

#include "cli/verbs.h"
#include "hub/resolve.h"

namespace espalier::cli {
namespace {

struct InspectOptions {
  std::string model;
  bool json = false;
};

void run_inspect(const InspectOptions& options) {
  const nlohmann::ordered_json inspection = evaluation::inspect(hub::resolve(options.model).path);
  if (options.json) {
    std::cout << inspection.dump(2) << "\n";
  } else {
    std::cout << evaluation::inspection_text(inspection);
  }
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* verb = app.add_subcommand(
      "inspect", "Print what a model is: its layers as they are understood, tensors, parameters");
  verb->add_option("MODEL,--model", options->model, "folder, .gguf file, repo id or alias")
      ->required();
  verb->add_flag("--json", options->json, "print one JSON object");
  verb->footer(
      "Example:\n"
      "  espalier inspect MODEL");
  verb->callback([options, &action] { action = [options] { run_inspect(*options); }; });
}

}  // namespace espalier::cli
