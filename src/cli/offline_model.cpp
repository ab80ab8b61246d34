#include "cli/offline_model.h"

#include "base/thread_pool.h"
#include "generation/load_options.h"

namespace espalier::cli {

std::unique_ptr<models::Model> load_offline_model(const ModelOptions& options) {
  if (options.engine.threads) base::set_compute_threads(*options.engine.threads);
  return models::load_model(hub::resolve(options.model).path,
                            generation::load_options(options.engine));
}

}  // namespace espalier::cli
