#include "chat/schema_alternatives.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "chat/schema_reference.h"

namespace espalier::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr int deepest = 16;
constexpr std::size_t most_alternatives = 64;

constexpr std::array<const char*, 4> applicators = {"$ref", "allOf", "anyOf", "oneOf"};

/// The names that `type` gives; all when it is absent.
std::vector<std::string> type_names(const Json& part) {
  if (!part.contains("type")) {
    return {"null", "boolean", "number", "string", "array", "object"};
  }
  const Json& type = part["type"];
  if (type.is_string()) return {type.get<std::string>()};
  std::vector<std::string> names;
  for (const Json& name : type) {
    if (name.is_string()) names.push_back(name.get<std::string>());
  }
  return names;
}

bool has_name(const std::vector<std::string>& names, const char* name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_whole(const Json& value) {
  if (value.is_number_integer()) return true;
  return std::trunc(value.get<double>()) == value.get<double>();
}

bool is_allowed(const Json& value, const ValueTypes& types, bool integer) {
  if (value.is_string()) return types.string;
  if (value.is_null()) return types.null;
  if (value.is_boolean()) return types.boolean;
  if (value.is_number()) return types.number && (!integer || is_whole(value));
  return value.is_array() ? types.array : types.object;
}

bool have_common_type(const SchemaParts& first, const SchemaParts& second) {
  const ValueTypes a = allowed_types(first);
  const ValueTypes b = allowed_types(second);
  return (a.string && b.string) || (a.number && b.number) || (a.boolean && b.boolean) ||
         (a.null && b.null) || (a.object && b.object) || (a.array && b.array);
}

/// Whether it is certain that no value fulfils both.
bool are_disjoint(const SchemaParts& first, const SchemaParts& second) {
  if (!have_common_type(first, second)) return true;
  const auto a = literals(first);
  const auto b = literals(second);
  if (!a || !b) return false;
  return std::none_of(a->begin(), a->end(), [&b](const Json& value) {
    return value.is_structured() || std::find(b->begin(), b->end(), value) != b->end();
  });
}

class Expansion {
 public:
  Expansion(const Json& root, const std::string& place) : root_(root), place_(place) {}

  bool exclusive() const { return exclusive_; }

  std::vector<SchemaParts> expand(const Json& schema, int depth) {
    if (schema.is_boolean()) {
      if (!schema.get<bool>()) return {};
      return {{Json::object()}};
    }
    if (!schema.is_object()) refuse_keyword("properties", place_);
    if (depth > deepest) refuse_keyword("$ref", place_);
    if (schema.contains("enum") && !schema["enum"].is_array()) refuse_keyword("enum", place_);
    Json own = schema;
    for (const char* key : applicators) own.erase(key);
    std::vector<SchemaParts> ways = {{own}};
    if (schema.contains("$ref")) {
      const Json* target = referenced_schema(root_, schema);
      if (target == nullptr) refuse_keyword("$ref", place_);
      ways = combine(ways, expand(*target, depth + 1));
    }
    for (const Json& part : list(schema, "allOf")) ways = combine(ways, expand(part, depth + 1));
    for (const char* key : {"anyOf", "oneOf"}) {
      if (schema.contains(key)) ways = combine(ways, choose(list(schema, key), key, depth + 1));
    }
    return ways;
  }

 private:
  Json list(const Json& schema, const char* key) const {
    const auto found = schema.find(key);
    if (found == schema.end()) return Json::array();
    if (!found->is_array()) refuse_keyword(key, place_);
    return *found;
  }

  std::vector<SchemaParts> choose(const Json& choices, const std::string& keyword, int depth) {
    std::vector<SchemaParts> ways;
    for (const Json& choice : choices) {
      const std::vector<SchemaParts> more = expand(choice, depth);
      for (const SchemaParts& way : more) {
        if (keyword != "oneOf") break;
        exclusive_ &= std::all_of(ways.begin(), ways.end(),
                                  [&way](const auto& other) { return are_disjoint(way, other); });
      }
      ways.insert(ways.end(), more.begin(), more.end());
    }
    if (ways.size() > most_alternatives) refuse_keyword(keyword, place_);
    return ways;
  }

  std::vector<SchemaParts> combine(const std::vector<SchemaParts>& first,
                                   const std::vector<SchemaParts>& second) const {
    if (first.size() * second.size() > most_alternatives) refuse_keyword("anyOf", place_);
    std::vector<SchemaParts> both;
    for (const SchemaParts& one : first) {
      for (const SchemaParts& other : second) {
        both.push_back(one);
        both.back().insert(both.back().end(), other.begin(), other.end());
      }
    }
    return both;
  }

  const Json& root_;
  const std::string& place_;
  bool exclusive_ = true;
};

}  // namespace

void refuse_keyword(const std::string& keyword, const std::string& place) {
  throw base::RequestError(400, "unsupported_schema",
                           std::string("The keyword '") + keyword + "' of " + place +
                               " cannot be kept in this model's form of tool calls.",
                           "tools");
}

SchemaAlternatives schema_alternatives(const Json& root, const Json& schema,
                                       const std::string& place) {
  Expansion expansion(root, place);
  std::vector<SchemaParts> ways = expansion.expand(schema, 0);
  return {.ways = std::move(ways), .exclusive = expansion.exclusive()};
}

ValueTypes allowed_types(const SchemaParts& parts) {
  ValueTypes types{.known = true,
                   .string = true,
                   .number = true,
                   .boolean = true,
                   .null = true,
                   .object = true,
                   .array = true};
  for (const Json& part : parts) {
    const std::vector<std::string> names = type_names(part);
    types.string &= has_name(names, "string");
    types.number &= has_name(names, "number") || has_name(names, "integer");
    types.boolean &= has_name(names, "boolean");
    types.null &= has_name(names, "null");
    types.object &= has_name(names, "object");
    types.array &= has_name(names, "array");
  }
  return types;
}

bool needs_integer(const SchemaParts& parts) {
  return std::any_of(parts.begin(), parts.end(), [](const Json& part) {
    const std::vector<std::string> names = type_names(part);
    return has_name(names, "integer") && !has_name(names, "number");
  });
}

void refuse_keywords(const SchemaParts& parts, const std::vector<std::string>& keywords,
                     const std::string& place) {
  for (const std::string& keyword : keywords) {
    for (const Json& part : parts) {
      if (part.contains(keyword)) refuse_keyword(keyword, place);
    }
  }
}

std::optional<std::vector<Json>> literals(const SchemaParts& parts) {
  std::optional<std::vector<Json>> values;
  const auto keep = [&values](const std::vector<Json>& allowed) {
    if (!values) {
      values = allowed;
      return;
    }
    std::erase_if(*values, [&allowed](const Json& value) {
      return std::find(allowed.begin(), allowed.end(), value) == allowed.end();
    });
  };
  for (const Json& part : parts) {
    if (part.contains("const")) keep({part["const"]});
    if (part.contains("enum") && part["enum"].is_array()) {
      keep(part["enum"].get<std::vector<Json>>());
    }
  }
  if (values) {
    const ValueTypes types = allowed_types(parts);
    const bool integer = needs_integer(parts);
    std::erase_if(*values, [&types, integer](const Json& value) {
      return !is_allowed(value, types, integer);
    });
  }
  return values;
}

}  // namespace espalier::chat
