#pragma once

#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "generation/engine.h"
#include "hub/resolve.h"
#include "models/model.h"
#include "server/protocol/served_model.h"

namespace espalier::cli {

/// The options of every verb that loads a model.
struct ModelOptions {
  std::string model;
  std::optional<int> threads;
  std::string dtype;
  std::string activations = "int8";
};

/// Adds --model (required), --threads, --dtype and --activations.
void add_model_options(CLI::App& verb, ModelOptions& options);
/// Adds --model alone, for verbs that read no weights.
void add_model_name(CLI::App& verb, std::string& model);

/// Sets up the compute pool and loads the weights for verbs that drive the model themselves.
std::unique_ptr<models::Model> load_weights(const ModelOptions& options);

generation::EngineOptions engine_options(const ModelOptions& options);

/// Tokenizer, chat template and names of a model; the engine is the caller's to set.
server::protocol::ServedModel load_text(const hub::LocalModel& model);

/// The same with an engine that is ready.
std::shared_ptr<const server::protocol::ServedModel> load_with_engine(
    const hub::LocalModel& model, const generation::EngineOptions& options);

}  // namespace espalier::cli
