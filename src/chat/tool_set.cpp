#include "chat/tool_set.h"

#include <algorithm>
#include <cctype>

#include "chat/literal.h"
#include "chat/schema_reference.h"

namespace espalier::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr int schema_depth = 32;

void add_type(const std::string& name, ValueTypes& types) {
  types.known = true;
  types.string |= name == "string" || name == "str" || name == "text";
  types.number |= name == "number" || name == "integer" || name == "int" || name == "float";
  types.boolean |= name == "boolean" || name == "bool";
  types.null |= name == "null";
  types.object |= name == "object" || name == "dict";
  types.array |= name == "array" || name == "list";
}

void add_value(const Json& value, ValueTypes& types) {
  types.known = true;
  types.string |= value.is_string();
  types.number |= value.is_number();
  types.boolean |= value.is_boolean();
  types.null |= value.is_null();
  types.object |= value.is_object();
  types.array |= value.is_array();
}

void add_types(const Json& root, const Json& schema, int depth, ValueTypes& types) {
  if (!schema.is_object() || depth > schema_depth) return;
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (type->is_string()) {
      add_type(type->get<std::string>(), types);
    } else if (type->is_array()) {
      for (const Json& one : *type) {
        if (one.is_string()) add_type(one.get<std::string>(), types);
      }
    }
    if (schema.value("nullable", Json()) == Json(true)) types.null = true;
    return;
  }
  if (const auto value = schema.find("const"); value != schema.end()) add_value(*value, types);
  if (const auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
    for (const Json& value : *values) add_value(value, types);
  }
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const auto choices = schema.find(key);
    if (choices == schema.end() || !choices->is_array()) continue;
    for (const Json& choice : *choices) add_types(root, choice, depth + 1, types);
  }
  const Json& target = resolve_schema(root, schema);
  if (&target != &schema) add_types(root, target, depth + 1, types);
  if (!types.known && schema.contains("properties")) add_type("object", types);
  if (!types.known && schema.contains("items")) add_type("array", types);
}

/// A function's schema whose root refers to one of its definitions, as that definition.
Json without_root_reference(const Json& schema) {
  const Json& target = resolve_schema(schema, schema);
  if (&target == &schema) return schema;
  Json result = target;
  for (const char* definitions : {"$defs", "definitions"}) {
    if (schema.contains(definitions)) result[definitions] = schema[definitions];
  }
  return result;
}

const Json* properties(const Tool* tool) {
  if (tool == nullptr || !tool->parameters.is_object()) return nullptr;
  const auto found = tool->parameters.find("properties");
  return found != tool->parameters.end() && found->is_object() ? &*found : nullptr;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char byte) { return static_cast<char>(std::tolower(byte)); });
  return result;
}

/// A JSON or Python value as JSON, if the text is one.
std::optional<std::string> structured(std::string_view text) {
  if (Json::accept(text)) return std::string(text);
  auto json = literal_to_json(text, LiteralSyntax::python);
  return json && Json::accept(*json) ? json : std::nullopt;
}

/// Takes digits from the front; false when there are none.
bool take_digits(std::string_view& text) {
  const std::size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
  text.remove_prefix(count);
  return count > 0;
}

/// A number of any size as JSON writes it.
bool is_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  if (text.size() > 1 && text[0] == '0' && std::isdigit(static_cast<unsigned char>(text[1])) != 0) {
    return false;
  }
  if (!take_digits(text)) return false;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (!take_digits(text)) return false;
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
    if (!take_digits(text)) return false;
  }
  return text.empty();
}

}  // namespace

ToolSet::ToolSet(std::string_view json) {
  const Json parsed = Json::parse(json, nullptr, false);
  if (!parsed.is_array()) return;
  for (const Json& entry : parsed) {
    if (!entry.is_object()) continue;
    const auto nested = entry.find("function");
    const Json& function = nested != entry.end() && nested->is_object() ? *nested : entry;
    const auto name = function.find("name");
    if (name == function.end() || !name->is_string()) continue;
    Tool tool{.name = name->get<std::string>(), .description = {}, .parameters = nullptr};
    if (const auto text = function.find("description");
        text != function.end() && text->is_string()) {
      tool.description = text->get<std::string>();
    }
    for (const char* key : {"parameters", "input_schema"}) {
      if (const auto schema = function.find(key); schema != function.end()) {
        tool.parameters = without_root_reference(*schema);
      }
    }
    tools_.push_back(std::move(tool));
  }
}

const Tool* ToolSet::find(std::string_view name) const {
  const auto found = std::find_if(tools_.begin(), tools_.end(),
                                  [name](const Tool& tool) { return tool.name == name; });
  return found == tools_.end() ? nullptr : &*found;
}

ValueTypes ToolSet::types(std::string_view tool, std::string_view parameter) const {
  ValueTypes types;
  const Tool* function = find(tool);
  const Json* members = properties(function);
  const auto schema = members ? members->find(std::string(parameter)) : Json::const_iterator();
  if (members == nullptr || schema == members->end()) {
    types.known = true;
    types.string = true;
    return types;
  }
  add_types(function->parameters, *schema, 0, types);
  return types;
}

std::optional<std::string> ToolSet::parameter_at(std::string_view tool, std::size_t place) const {
  const Json* members = properties(find(tool));
  if (members == nullptr || place >= members->size()) return std::nullopt;
  return std::next(members->begin(), static_cast<std::ptrdiff_t>(place)).key();
}

std::string typed_json(std::string_view text, const ValueTypes& types) {
  if (types.known && types.only_string()) return json_string(text);
  const std::string_view value = trim(text);
  const bool any = !types.known;
  std::string word = lower(value);
  if ((any || types.null) && (word == "null" || word == "none")) return "null";
  if ((any || types.boolean) && (word == "true" || word == "false")) return word;
  if ((any || types.number) && is_number(value)) return std::string(value);
  const bool object = value.starts_with('{') && (any || types.object);
  const bool array = value.starts_with('[') && (any || types.array);
  if (object || array) {
    if (auto json = structured(value)) return *json;
  }
  if (any && value.starts_with('"') && Json::accept(value)) return std::string(value);
  if (!any && !types.string) {
    if (auto json = structured(value)) return *json;
  }
  return json_string(text);
}

}  // namespace espalier::chat
