#pragma once

#include <functional>
#include <memory>

#include "generation/engine.h"
#include "models/model.h"

namespace espalier::generation {

/// Brings the model; called once, on the engine's thread.
using ModelLoader = std::function<std::unique_ptr<models::Model>()>;

/// The engine around any model: `Engine::load` with another way to load. Returns when the model is
/// ready; throws what `loader` throws, `LoadError` when no KV memory fits and `UsageError` for
/// options out of range.
std::unique_ptr<Engine> start_engine(const ModelLoader& loader, const EngineOptions& options);

}  // namespace espalier::generation
