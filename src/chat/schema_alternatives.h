#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "chat/tool_set.h"

namespace espalier::chat {

/// One way to fulfil a schema: all of these hold. None has references or choices at its top.
using SchemaParts = std::vector<nlohmann::ordered_json>;

/// A schema that forced calls cannot be held to: 400 with the keyword, `place` saying of what.
[[noreturn]] void refuse_keyword(const std::string& keyword, const std::string& place);

struct SchemaAlternatives {
  std::vector<SchemaParts> ways;
  bool exclusive = true;  // no value is known to fulfil two schemas of a `oneOf`
};

/// All ways to fulfil a schema, whose references lead into `root`. Throws `RequestError` 400 naming
/// the keyword and `place` when they cannot be told.
SchemaAlternatives schema_alternatives(const nlohmann::ordered_json& root,
                                       const nlohmann::ordered_json& schema,
                                       const std::string& place);

/// The types that all parts allow; `known` is always set.
ValueTypes allowed_types(const SchemaParts& parts);
/// Whether numbers have to be whole.
bool needs_integer(const SchemaParts& parts);
/// Throws `RequestError` 400 when a part has one of the keywords.
void refuse_keywords(const SchemaParts& parts, const std::vector<std::string>& keywords,
                     const std::string& place);
/// The values that `enum` and `const` leave, of types that are allowed; nothing without them.
std::optional<std::vector<nlohmann::ordered_json>> literals(const SchemaParts& parts);

}  // namespace espalier::chat
