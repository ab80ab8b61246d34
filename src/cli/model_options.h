#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "generation/engine.h"
#include "hub/resolve.h"
#include "server/protocol/served_model.h"

namespace espalier::cli {

/// The options of every verb that runs a model.
struct ModelOptions {
  std::string model;
  generation::EngineOptions engine;
  std::string tool_dialect = {};   // empty: as the template shows
  std::string chat_template = {};  // a file in place of the model's own template; empty: none
};

/// Adds `--model`, `--threads`, `--dtype`, `--activations`, `--numeric`, `--check-weights`,
/// `--no-repack` and `--kv-type`.
void add_model_options(CLI::App& verb, ModelOptions& options, bool model_required = true);

/// Adds what only an engine and a conversation have: `--context`, `--prefill-chunk`,
/// `--chat-template`.
void add_engine_options(CLI::App& verb, ModelOptions& options);

/// Reads tokenizer and template and loads the weights. Throws `LoadError`.
std::shared_ptr<const server::protocol::ServedModel> load_served_model(const hub::LocalModel& model,
                                                                       const ModelOptions& options);

/// Where a tokenizer or template can be read although there may be no whole model: an existing path
/// as it is, else as `hub::resolve` finds it.
std::filesystem::path text_path(const std::string& model);

}  // namespace espalier::cli
