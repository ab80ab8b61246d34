#pragma once

#include <nlohmann/json.hpp>

namespace espalier::chat {

/// The schema itself, or what its `$ref` into `root` means.
const nlohmann::ordered_json& resolve_schema(const nlohmann::ordered_json& root,
                                             const nlohmann::ordered_json& schema);

}  // namespace espalier::chat
