#include <iomanip>
#include <iostream>
#include <memory>

#include <nlohmann/json.hpp>

#include "cli/verbs.h"
#include "hub/resolve.h"

namespace espalier::cli {
namespace {

int list(bool as_json) {
  const auto models = hub::list_models();
  if (as_json) {
    nlohmann::ordered_json rows = nlohmann::json::array();
    for (const auto& model : models) {
      rows.push_back({{"alias", model.alias},
                      {"path", model.path.string()},
                      {"repo_id", model.repo_id.empty() ? nlohmann::json() : model.repo_id},
                      {"bytes", model.bytes}});
    }
    std::cout << rows.dump(2) << std::endl;
    return 0;
  }
  if (models.empty()) {
    std::cout << "No models in " << (hub::home() / "models").string()
              << " or the Hugging Face cache." << std::endl;
    return 0;
  }
  std::size_t width = 0;
  for (const auto& model : models) width = std::max(width, model.alias.size());
  for (const auto& model : models) {
    std::cout << std::left << std::setw(static_cast<int>(width) + 2) << model.alias << std::right
              << std::setw(9) << std::fixed << std::setprecision(1)
              << static_cast<double>(model.bytes) / 1e6 << " MB  " << model.path.string() << '\n';
  }
  return 0;
}

}  // namespace

void add_ls(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("ls", "The models on this machine, with their aliases.");
  const auto as_json = std::make_shared<bool>(false);
  verb->add_flag("--json", *as_json, "Print an array of {alias, path, repo_id, bytes}");
  verb->callback([as_json, &action] { action = [as_json] { return list(*as_json); }; });
}

}  // namespace espalier::cli
