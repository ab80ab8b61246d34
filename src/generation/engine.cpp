#include "generation/engine.h"

#include "base/thread_pool.h"
#include "generation/batching_engine.h"
#include "generation/load_options.h"
#include "models/model.h"

namespace espalier::generation {
std::unique_ptr<Engine> Engine::load(const std::filesystem::path& path,
                                     const EngineOptions& options) {
  const models::LoadOptions load = load_options(options);
  if (options.threads) {
    base::set_compute_threads(*options.threads);
  }
  return start_engine([&] { return models::load_model(path, load); }, options);
}

}  // namespace espalier::generation
