#include "generation/engine.h"

#include "base/error.h"
#include "base/thread_pool.h"
#include "generation/batching_engine.h"
#include "mlx/mlx.h"
#include "models/model.h"

namespace espalier::generation {
namespace {

models::LoadOptions load_options(const EngineOptions& options) {
  models::LoadOptions result;
  if (options.dtype == "f32") {
    result.dtype = mlx::core::float32;
  } else if (options.dtype == "bfloat16") {
    result.dtype = mlx::core::bfloat16;
  } else if (options.dtype == "float16") {
    result.dtype = mlx::core::float16;
  } else if (!options.dtype.empty()) {
    throw base::UsageError("The dtype must be f32, bfloat16 or float16, not \"" + options.dtype +
                           "\".");
  }
  if (options.activations == "f32") {
    result.activations = kernels::ActivationFormat::f32;
  } else if (options.activations != "int8") {
    throw base::UsageError("The activations must be int8 or f32, not \"" + options.activations +
                           "\".");
  }
  return result;
}

}  // namespace

std::unique_ptr<Engine> Engine::load(const std::filesystem::path& path,
                                     const EngineOptions& options) {
  const models::LoadOptions load = load_options(options);
  if (options.threads) {
    base::set_compute_threads(*options.threads);
  }
  return start_engine([&] { return models::load_model(path, load); }, options);
}

}  // namespace espalier::generation
