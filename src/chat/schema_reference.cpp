#include "chat/schema_reference.h"

#include <string>

namespace espalier::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr int longest_chain = 32;

/// What a reference inside the same schema points to; null when it points nowhere.
const Json* find_target(const Json& root, const std::string& reference) {
  if (!reference.starts_with("#")) return nullptr;
  try {
    return &root.at(Json::json_pointer(reference.substr(1)));
  } catch (const Json::exception&) {
    return nullptr;
  }
}

}  // namespace

const Json& resolve_schema(const Json& root, const Json& schema) {
  const Json* found = &schema;
  for (int length = 0; length < longest_chain && found->is_object(); ++length) {
    const auto reference = found->find("$ref");
    if (reference == found->end() || !reference->is_string()) break;
    const Json* target = find_target(root, reference->get<std::string>());
    if (target == nullptr) break;
    found = target;
  }
  return *found;
}

}  // namespace espalier::chat
