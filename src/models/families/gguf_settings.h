#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "models/config_reader.h"
#include "models/descriptor.h"
#include "models/gguf_reader.h"

namespace espalier::models {

/// A GGUF file's settings under the names that `config.json` has for them, so that one function
/// reads a family from both containers. `extra` holds what GGUF does not say, or says otherwise;
/// its entries count before the file's. `foreign` are names that the family's `config.json` has
/// not.
ConfigReader gguf_settings(const GgufReader& file, const std::string& model_type,
                           const nlohmann::json& extra,
                           std::initializer_list<const char*> foreign = {});

/// Mamba 2's settings under the names that Bamba, Falcon-H1 and Granite 4 have for them.
nlohmann::json gguf_mamba2_settings(const GgufReader& file);

/// Which layers have attention: those with key-value heads. All, where the file has one number.
std::vector<bool> gguf_attending_layers(const GgufReader& file);

/// Puts GGUF's tensor names in place of Hugging Face's, those of a mixture of experts and of
/// recurrent parts among them, and the layout of its experts.
void use_gguf_tensors(Descriptor& decoder);

/// GGUF's names of Mamba's tensors.
std::vector<std::pair<std::string, std::string>> gguf_mamba_names();

}  // namespace espalier::models
