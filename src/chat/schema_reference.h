#pragma once

#include <nlohmann/json.hpp>

namespace espalier::chat {

/// What a schema's `$ref` into `root` leads to, one step; null when it has none or leads nowhere.
const nlohmann::ordered_json* referenced_schema(const nlohmann::ordered_json& root,
                                                const nlohmann::ordered_json& schema);

/// The schema itself, or what its `$ref` into `root` means.
const nlohmann::ordered_json& resolve_schema(const nlohmann::ordered_json& root,
                                             const nlohmann::ordered_json& schema);

/// A schema inside `root` as a document of its own: what its references lead to comes along.
nlohmann::ordered_json as_document(const nlohmann::ordered_json& root,
                                   nlohmann::ordered_json schema);

}  // namespace espalier::chat
