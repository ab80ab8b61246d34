#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "models/descriptor.h"

namespace espalier::models {

/// The whole description as JSON; what is off or absent is left out, and equal layers that follow
/// one another are written once.
nlohmann::ordered_json to_json(const Descriptor& descriptor);

/// The same as lines of "key: value", objects indented.
std::string to_text(const nlohmann::ordered_json& json);

/// As descriptions write it.
std::string_view activation_name(layers::Activation activation);

/// How many parameters a token's way through the layers meets less than there are: those of experts
/// that it does not choose.
std::size_t idle_parameters(const Descriptor& descriptor);

}  // namespace espalier::models
