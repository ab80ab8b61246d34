#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "layers/weight_reader.h"
#include "models/descriptor.h"

namespace espalier::models {

/// Throws `LoadError` naming the tensors of the checkpoint that were neither read nor are known to
/// be without use, and what else a reader of headers found wrong.
void check_all_tensors_read(const Descriptor& descriptor, layers::WeightReader& weights);

/// Why the model may leave a tensor of that name unread; empty when it may not.
std::string_view reason_to_ignore(const std::string& name, const Descriptor& descriptor);

/// Checks settings and headers of a checkpoint of any kind as loading it does, without reading
/// weights; returns the bytes that they take once packed. Throws `LoadError` naming every tensor
/// that is missing, misshapen, of a wrong type or without use.
std::size_t audit_checkpoint(const std::filesystem::path& path);

}  // namespace espalier::models
