#include "cli/offline_model.h"

#include "base/thread_pool.h"
#include "generation/load_options.h"

namespace espalier::cli {

std::unique_ptr<models::Model> load_offline_model(const ModelOptions& options) {
  if (options.engine.threads) base::set_compute_threads(*options.engine.threads);
  models::LoadOptions load = generation::parse_load_options(
      options.engine.dtype, options.engine.activations, options.engine.numeric);
  load.check_weights = options.engine.check_weights;
  load.context = options.engine.context;
  return models::load_model(hub::resolve(options.model).path, load);
}

}  // namespace espalier::cli
