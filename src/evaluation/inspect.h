#pragma once

#include <filesystem>

#include <nlohmann/json.hpp>

namespace espalier::evaluation {

/// A checkpoint without its weights: `description` (models/print.h), `tensors` (name to type and
/// shape), `parameters` with `total` and `per_token` (what one token's way meets).
nlohmann::ordered_json inspect(const std::filesystem::path& path);

/// The same to read: the description, one line a tensor, the counts.
std::string inspection_text(const nlohmann::ordered_json& inspection);

}  // namespace espalier::evaluation
