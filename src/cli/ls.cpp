#include <iomanip>
#include <iostream>
#include <memory>
#include <optional>

#include "cli/verbs.h"
#include "evaluation/summary.h"
#include "hub/resolve.h"
#include "server/protocol/parameter.h"

namespace espalier::cli {
namespace {

using server::protocol::Json;

/// What headers say about a model; a damaged one still has a name and a place.
Json details(const hub::LocalModel& model) {
  try {
    const evaluation::ModelSummary summary = evaluation::summarize(model.path);
    return {{"format", summary.container},
            {"family", summary.family},
            {"parameters", summary.parameters},
            {"bits_per_weight", summary.bits_per_weight},
            {"weight_bytes", summary.weight_bytes},
            {"weight_types", summary.bytes_by_type},
            {"error", nullptr}};
  } catch (const std::exception& error) {
    return {{"error", error.what()}};
  }
}

void print_json(const std::vector<hub::LocalModel>& models) {
  Json result = Json::array();
  for (const hub::LocalModel& model : models) {
    Json entry = {{"alias", model.alias},
                  {"path", model.path.string()},
                  {"repo_id", model.repo_id.empty() ? Json(nullptr) : Json(model.repo_id)},
                  {"bytes", model.bytes}};
    entry.update(details(model));
    result.push_back(std::move(entry));
  }
  std::cout << server::protocol::dump(result) << "\n";
}

void print_table(const std::vector<hub::LocalModel>& models) {
  std::size_t width = 0;
  for (const hub::LocalModel& model : models) width = std::max(width, model.alias.size());
  for (const hub::LocalModel& model : models) {
    std::cout << std::left << std::setw(static_cast<int>(width)) << model.alias << std::right
              << std::setw(9) << std::fixed << std::setprecision(1)
              << static_cast<double>(model.bytes) / 1e6 << " MB  "
              << (model.repo_id.empty() ? model.path.string() : model.repo_id) << "\n";
  }
}

void run_ls(bool json) {
  const std::vector<hub::LocalModel> models = hub::list_models();
  if (json) {
    print_json(models);
  } else if (models.empty()) {
    std::cerr << "no models: put a .gguf file or a checkpoint folder into "
              << (hub::home() / "models").string() << "\n";
  } else {
    print_table(models);
  }
}

}  // namespace

void add_ls(CLI::App& app, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* verb =
      app.add_subcommand("ls", "List the models on this machine: alias, size, and where they lie");
  verb->add_flag("--json", *json,
                 "print an array of {alias, path, repo_id, bytes, format, family, parameters, "
                 "bits_per_weight, weight_bytes, weight_types, error}");
  verb->callback([json, &action] { action = [json] { run_ls(*json); }; });
}

}  // namespace espalier::cli
