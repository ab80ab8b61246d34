#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "models/config_reader.h"
#include "models/descriptor.h"

namespace espalier::models {

/// A decoder without layers yet, for families whose settings lack attention's: vocabulary, width,
/// tied head and end tokens. States of fixed size set no limit on positions, so where the file
/// names none the context is a million.
Descriptor recurrent_decoder(ConfigReader& config);

/// What each layer is, one of `kinds`: from the list under `key`, where older names of these layers
/// stand for newer ones ("mamba" for "linear_attention", "attention" for "full_attention"). Empty
/// when the key is absent. Throws `LoadError` for other kinds.
std::vector<std::string> layer_kinds(const ConfigReader& config, std::string_view key,
                                     const std::vector<std::string>& kinds);

/// Marks keys as read that concern training, kernels' choices, or sizes that other keys repeat.
void ignore_keys(const ConfigReader& config, std::initializer_list<std::string_view> keys);

/// The whole number under `key`, or `automatic` where the file says "auto" or nothing.
int integer_or_auto(const ConfigReader& config, std::string_view key, int automatic);

/// The recurrent part of layer `index`. An internal error where it is of another kind.
RecurrentDescriptor& recurrent_part(Descriptor& decoder, std::size_t index);

/// Mamba 2 as Bamba, Falcon-H1 and Granite 4 name its settings (`mamba_n_heads`, …), with
/// `channels` inner channels; the output norm is the caller's.
Mamba2Descriptor read_mamba2_part(const ConfigReader& config, int channels);

/// A decoder whose attention stands beside Mamba 2, as Bamba and Falcon-H1 name settings and
/// tensors; the mixers are the caller's.
Descriptor attention_and_mamba2_decoder(ConfigReader& config);

/// The activation under `key` inside recurrent mixers; SiLU where the file names none. Throws
/// `LoadError` for one with learned constants.
layers::Activation recurrent_activation(const ConfigReader& config, std::string_view key);

}  // namespace espalier::models
