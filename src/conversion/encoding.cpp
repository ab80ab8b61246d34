#include "conversion/encoding.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "conversion/trellis_plan.h"

namespace espalier::conversion {
namespace {

using arrays::StorageType;
using quantization::mlx_modes;
using quantization::MlxFormat;
using quantization::MlxMode;

constexpr std::array<std::pair<std::string_view, StorageType>, 3> dtypes = {{
    {"bfloat16", StorageType::bf16},
    {"float16", StorageType::f16},
    {"float32", StorageType::f32},
}};

}  // namespace

std::string to_string(const Encoding& encoding) {
  if (const auto* type = std::get_if<StorageType>(&encoding)) {
    return std::string(arrays::storage_traits(*type).name);
  }
  if (const auto* trellis = std::get_if<kernels::TrellisFormat>(&encoding)) {
    const bool usual = *trellis == kernels::TrellisFormat{.bits = trellis->bits,
                                                          .axis = trellis->axis,
                                                          .half_bit = trellis->half_bit};
    return "trellis " + trellis_bits(*trellis) + " bit" +
           (usual ? ""
                  : ", L " + std::to_string(trellis->state_bits) + " " + code_name(trellis->code));
  }
  const auto& format = std::get<MlxFormat>(encoding);
  if (format.mode != MlxMode::affine) return mode_name(format.mode);
  return "affine " + std::to_string(format.bits) + " bit by " + std::to_string(format.group);
}

bool is_dense(const Encoding& encoding) {
  const auto* type = std::get_if<StorageType>(&encoding);
  return type != nullptr &&
         (*type == StorageType::f32 || *type == StorageType::f16 || *type == StorageType::bf16);
}

bool is_integer(StorageType type) {
  return type >= StorageType::i64 && type <= StorageType::boolean;
}

StorageType parse_dtype(const std::string& name) {
  const auto* found =
      std::ranges::find(dtypes, name, [](const auto& entry) { return entry.first; });
  if (found == dtypes.end()) {
    throw base::UsageError("the dtype must be bfloat16, float16 or float32, not \"" + name + "\"");
  }
  return found->second;
}

std::string dtype_name(StorageType type) {
  const auto* found =
      std::ranges::find(dtypes, type, [](const auto& entry) { return entry.second; });
  return std::string(found == dtypes.end() ? "float32" : found->first);
}

MlxMode parse_mode(const std::string& name) {
  const auto* found =
      std::ranges::find(mlx_modes, name, [](const auto& entry) { return entry.first; });
  if (found == mlx_modes.end()) {
    throw base::UsageError("weights can be quantized as affine, mxfp4, mxfp8 or nvfp4, not \"" +
                           name + "\"");
  }
  return found->second;
}

std::string mode_name(MlxMode mode) {
  const auto* found =
      std::ranges::find(mlx_modes, mode, [](const auto& entry) { return entry.second; });
  return std::string(found->first);
}

std::string code_name(kernels::TrellisCode code) {
  return code == kernels::TrellisCode::one_mad ? "1mad" : "mul1";
}

double bits_per_weight(const Encoding& encoding, int scale_bits) {
  if (const auto* type = std::get_if<StorageType>(&encoding)) {
    const auto& traits = arrays::storage_traits(*type);
    return 8.0 * traits.bytes / traits.elements;
  }
  if (const auto* trellis = std::get_if<kernels::TrellisFormat>(&encoding)) {
    return trellis->bits + (trellis->half_bit ? 0.5 : 0.0);
  }
  const auto& format = std::get<MlxFormat>(encoding);
  const int group_bits = format.mode == MlxMode::affine ? 2 * scale_bits : 8;
  return format.bits + static_cast<double>(group_bits) / format.group;
}

}  // namespace espalier::conversion
