#include "chat/schema_reference.h"

#include <string>

namespace espalier::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr int longest_chain = 32;
constexpr const char* origin = "espalier-root";  // the name of the root among the definitions

/// Makes references into a root lead into the definition that holds it; false: there are none.
bool move_references(Json& schema) {
  bool any = false;
  if (schema.is_object()) {
    const auto reference = schema.find("$ref");
    if (reference != schema.end() && reference->is_string()) {
      const std::string place = reference->get<std::string>();
      if (place == "#" || place.starts_with("#/")) {
        *reference = std::string("#/$defs/").append(origin).append(place, 1);
        any = true;
      }
    }
  }
  if (schema.is_structured()) {
    for (Json& part : schema) any |= move_references(part);
  }
  return any;
}

}  // namespace

const Json* referenced_schema(const Json& root, const Json& schema) {
  if (!schema.is_object()) return nullptr;
  const auto reference = schema.find("$ref");
  if (reference == schema.end() || !reference->is_string()) return nullptr;
  const std::string place = reference->get<std::string>();
  if (!place.starts_with("#")) return nullptr;
  try {
    return &root.at(Json::json_pointer(place.substr(1)));
  } catch (const Json::exception&) {
    return nullptr;
  }
}

const Json& resolve_schema(const Json& root, const Json& schema) {
  const Json* found = &schema;
  for (int length = 0; length < longest_chain; ++length) {
    const Json* target = referenced_schema(root, *found);
    if (target == nullptr) break;
    found = target;
  }
  return *found;
}

Json as_document(const Json& root, Json schema) {
  if (!schema.is_object()) return schema;
  const auto draft = root.find("$schema");
  if (draft != root.end() && !schema.contains("$schema")) schema["$schema"] = *draft;
  if (!move_references(schema)) return schema;
  Json whole = root;
  whole.erase("$schema");
  whole.erase("$id");
  move_references(whole);
  if (schema.contains("$defs") && !schema["$defs"].is_object()) return schema;  // is refused
  schema["$defs"][origin] = whole;
  return schema;
}

}  // namespace espalier::chat
