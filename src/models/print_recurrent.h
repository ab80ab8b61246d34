#pragma once

#include <nlohmann/json.hpp>

#include "models/recurrent_descriptor.h"

namespace espalier::models {

/// A recurrent mixer as JSON under its kind's name; what is off or absent is left out.
nlohmann::ordered_json to_json(const RecurrentDescriptor& part);

}  // namespace espalier::models
