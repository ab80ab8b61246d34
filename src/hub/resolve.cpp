#include "hub/resolve.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <utility>

#include "base/error.h"

namespace espalier::hub {
namespace {

namespace fs = std::filesystem;
using base::LoadError;

/// What `./dev run` fetches.
constexpr std::string_view fetched_model = "SmolLM2-135M-Instruct.Q4_1";

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

fs::path user_folder() { return environment("HOME").value_or("/"); }

/// The Hugging Face cache: one folder `models--OWNER--NAME` a repository.
fs::path cache_folder() {
  if (const auto folder = environment("HF_HUB_CACHE")) return *folder;
  if (const auto folder = environment("HF_HOME")) return fs::path(*folder) / "hub";
  return user_folder() / ".cache" / "huggingface" / "hub";
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool is_gguf(const fs::path& path) { return path.extension() == ".gguf" && is_file(path); }

bool is_checkpoint(const fs::path& path) {
  return is_file(path / "config.json") || is_file(path / "params.json");
}

/// What a folder holds, sorted; empty when it cannot be read.
std::vector<fs::path> children(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    paths.push_back(entry->path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::uintmax_t file_bytes(const fs::path& path) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  return error ? 0 : bytes;
}

std::uintmax_t model_bytes(const fs::path& path) {
  if (is_file(path)) return file_bytes(path);
  std::uintmax_t bytes = 0;
  for (const fs::path& child : children(path)) {
    if (is_file(child)) bytes += file_bytes(child);
  }
  return bytes;
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

LocalModel local_model(const fs::path& path, std::string repo_id) {
  std::string name = path.filename().string();
  if (name.empty()) name = path.parent_path().filename().string();
  const std::string suffix = ".gguf";
  if (ends_with(name, suffix) && is_file(path)) name.resize(name.size() - suffix.size());
  return {std::move(name), path, std::move(repo_id), model_bytes(path)};
}

/// The models in one folder: GGUF files and checkpoint folders, one level deep.
std::vector<LocalModel> models_in(const fs::path& folder) {
  std::vector<LocalModel> models;
  for (const fs::path& child : children(folder)) {
    if (is_gguf(child) || is_checkpoint(child)) models.push_back(local_model(child, ""));
  }
  return models;
}

/// The folder of the revision that `main` points at, else the only one there is.
std::optional<fs::path> snapshot(const fs::path& repository) {
  std::string revision;
  std::ifstream(repository / "refs" / "main") >> revision;
  const fs::path folder = repository / "snapshots";
  if (!revision.empty() && fs::is_directory(folder / revision)) return folder / revision;
  const auto revisions = children(folder);
  if (revisions.size() != 1) return std::nullopt;
  return revisions.front();
}

std::vector<LocalModel> models_in_cache() {
  std::vector<LocalModel> models;
  const std::string prefix = "models--";
  for (const fs::path& repository : children(cache_folder())) {
    const std::string name = repository.filename().string();
    if (name.compare(0, prefix.size(), prefix) != 0) continue;
    const auto folder = snapshot(repository);
    if (!folder) continue;
    std::string repo_id = name.substr(prefix.size());
    const std::size_t separator = repo_id.find("--");
    if (separator != std::string::npos) {
      repo_id = repo_id.substr(0, separator) + "/" + repo_id.substr(separator + 2);
    }
    if (is_checkpoint(*folder)) {
      LocalModel model = local_model(*folder, repo_id);
      // The folder is named after a revision.
      model.alias = repo_id.substr(repo_id.find('/') + 1);
      models.push_back(std::move(model));
    }
    for (const fs::path& child : children(*folder)) {
      if (is_gguf(child)) models.push_back(local_model(child, repo_id));
    }
  }
  return models;
}

/// Levenshtein's distance.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({replaced, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row[b.size()];
}

std::string lower(std::string text) {
  for (char& character : text) {
    if (character >= 'A' && character <= 'Z') character += 'a' - 'A';
  }
  return text;
}

/// "; the nearest are A and B", or what to do when there is nothing.
std::string suggestion(const std::string& name, const std::vector<LocalModel>& models) {
  constexpr std::size_t shown = 3;
  if (models.empty()) return "; there is no model in " + (home() / "models").string();
  // Part of a name is as near as a name gets.
  std::vector<std::pair<std::size_t, std::string>> nearest;
  const std::string wanted = lower(name.substr(0, 200));
  for (const LocalModel& model : models) {
    const std::string alias = lower(model.alias);
    const bool part = !wanted.empty() && alias.find(wanted) != std::string::npos;
    nearest.emplace_back(part ? 0 : distance(wanted, alias), model.alias);
  }
  std::sort(nearest.begin(), nearest.end());
  nearest.erase(std::unique(nearest.begin(), nearest.end()), nearest.end());
  nearest.resize(std::min(nearest.size(), shown));
  std::string text = "; the nearest here: ";
  for (std::size_t i = 0; i < nearest.size(); ++i) {
    text += (i == 0 ? "" : ", ") + nearest[i].second;
  }
  return text;
}

}  // namespace

fs::path home() {
  if (const auto folder = environment("ESPALIER_HOME")) return *folder;
  return user_folder() / ".espalier";
}

std::vector<LocalModel> list_models() {
  std::vector<LocalModel> models = models_in(home() / "models");
  std::vector<LocalModel> cached = models_in_cache();
  models.insert(models.end(), std::make_move_iterator(cached.begin()),
                std::make_move_iterator(cached.end()));
  return models;
}

LocalModel resolve(const std::string& model) {
  if (model.empty()) throw LoadError("the model's name is empty" + suggestion("", list_models()));
  std::error_code error;
  if (fs::is_directory(model, error)) return local_model(model, "");
  if (is_file(model) && ends_with(model, ".gguf")) return local_model(model, "");
  if (fs::exists(model, error)) {
    throw LoadError(model + " is neither a folder nor a .gguf file");
  }
  const std::vector<LocalModel> models = list_models();
  for (const LocalModel& candidate : models) {
    if (candidate.alias == model || candidate.repo_id == model) return candidate;
  }
  throw LoadError("no model " + model + " here" + suggestion(model, models));
}

LocalModel default_model() {
  const std::vector<LocalModel> models = list_models();
  for (const std::string_view alias : {std::string_view("default"), fetched_model}) {
    for (const LocalModel& model : models) {
      if (model.alias == alias) return model;
    }
  }
  if (models.size() == 1) return models.front();
  if (models.empty()) {
    throw LoadError("there is no model here: put a .gguf file or a checkpoint folder into " +
                    (home() / "models").string() + " or name one with --model");
  }
  throw LoadError("there are several models here: name one with --model, or give the alias " +
                  std::string("\"default\" to one in ") + (home() / "models").string());
}

}  // namespace espalier::hub
