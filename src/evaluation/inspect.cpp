#include "evaluation/inspect.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "models/inspect.h"
#include "models/print.h"

namespace espalier::evaluation {
namespace {

using json = nlohmann::ordered_json;

std::size_t element_count(const arrays::TensorView& tensor) {
  std::size_t count = 1;
  for (const std::int64_t extent : tensor.shape) {
    count *= static_cast<std::size_t>(extent);
  }
  return count;
}

}  // namespace

json inspect(const std::filesystem::path& path) {
  const models::Inspection inspection = models::inspect_model(path);
  json tensors = json::object();
  std::size_t total = 0;
  for (const arrays::TensorView& tensor : inspection.tensors->tensors()) {
    tensors[tensor.name] = {{"type", arrays::storage_traits(tensor.type).name},
                            {"shape", tensor.shape}};
    total += element_count(tensor);
  }
  const std::size_t idle = models::idle_parameters(inspection.descriptor);
  return {{"description", models::to_json(inspection.descriptor)},
          {"tensors", std::move(tensors)},
          {"parameters", {{"total", total}, {"per_token", total - std::min(idle, total)}}}};
}

std::string inspection_text(const json& inspection) {
  std::string text = models::to_text(inspection.at("description")) + "\ntensors:\n";
  for (const auto& [name, tensor] : inspection.at("tensors").items()) {
    text += "  " + name + ": " + tensor.at("type").get<std::string>() + " " +
            tensor.at("shape").dump() + "\n";
  }
  return text + "\n" + models::to_text({{"parameters", inspection.at("parameters")}});
}

}  // namespace espalier::evaluation
