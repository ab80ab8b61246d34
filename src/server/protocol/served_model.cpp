#include "server/protocol/served_model.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "server/protocol/parameter.h"

namespace espalier::server::protocol {

void ServedModel::check_name(std::string_view name) const {
  if (name.empty() || name == "local" || name == "default" || name == alias) return;
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  throw base::RequestError(404, "model_not_found",
                           "The model '" + shown(std::string(name)) + "' is not served here; '" +
                               alias + "' is, also as 'local' and 'default'.",
                           "model");
}

void ModelSlot::set(std::shared_ptr<const ServedModel> model) {
  const std::lock_guard lock(mutex_);
  model_ = std::move(model);
}

std::shared_ptr<const ServedModel> ModelSlot::find() const {
  const std::lock_guard lock(mutex_);
  return model_;
}

std::shared_ptr<const ServedModel> ModelSlot::get() const {
  auto model = find();
  if (!model) {
    throw base::RequestError(503, "model_loading", "The model is still loading; try again soon.");
  }
  return model;
}

}  // namespace espalier::server::protocol
