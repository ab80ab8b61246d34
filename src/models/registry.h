#pragma once

#include <string>
#include <string_view>

#include "models/config_reader.h"
#include "models/descriptor.h"
#include "models/gguf_reader.h"

namespace espalier::models {

/// One supported architecture. A name is empty, and its function null, where the container does not
/// know the family.
struct Family {
  std::string_view model_type;    // config.json
  std::string_view architecture;  // GGUF
  Descriptor (*from_config)(ConfigReader& config);
  Descriptor (*from_gguf)(const GgufReader& file);
};

/// Whether a `model_type` is an encoder, which gives embeddings or scores instead of text.
bool is_encoder(std::string_view model_type);

/// Describes the model that `config.json` or GGUF metadata names, and checks that every setting
/// was understood. Throws `LoadError`; for an unknown architecture it lists the nearest supported
/// ones.
Descriptor describe_model(ConfigReader& config);
Descriptor describe_model(const GgufReader& file);

}  // namespace espalier::models
