#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace espalier::hub {

/// A model found on this machine.
struct LocalModel {
  std::string alias;           // file or folder stem
  std::filesystem::path path;  // a folder with config.json, or a .gguf file
  std::string repo_id;         // when it lies in the Hugging Face cache
  std::uintmax_t bytes;
};

/// `ESPALIER_HOME`, default `~/.espalier`.
std::filesystem::path home();

/// Everything under `home()/models` and in the Hugging Face cache (`HF_HUB_CACHE`, `HF_HOME`).
std::vector<LocalModel> list_models();

/// MODEL of the command line: a folder, a `.gguf` file, a repo id in the cache, or an alias. Throws
/// `LoadError` naming it, with the nearest aliases.
LocalModel resolve(const std::string& model);

/// The model `serve` takes when none is named: alias `default`, what `./dev run` fetches, or the
/// only one there. Throws
/// `LoadError` with one sentence saying what to do.
LocalModel default_model();

}  // namespace espalier::hub
