#include <algorithm>

#include "arrays/tensor_index.h"
#include "quantization/stored_tensors.h"

namespace espalier::quantization {
namespace {

using arrays::StorageType;
using arrays::TensorView;
using kernels::BandType;
using kernels::BlockCodes;
using kernels::ScaleType;

/// Codes and scales agree on bits and group; so must the configuration.
void check_configuration(const StoredTensors& tensors, const MlxScheme& found) {
  const std::optional<MlxScheme> wanted = configured_scheme(tensors);
  if (!wanted) {
    return;
  }
  const auto describe = [](const MlxScheme& scheme) {
    return std::to_string(scheme.bits) + " bits in groups of " + std::to_string(scheme.group) +
           " (" + scheme.mode + ")";
  };
  tensors.check(
      wanted->bits == found.bits && wanted->group == found.group && wanted->mode == found.mode,
      "weight",
      "is stored in " + describe(found) + ", but the configuration says " + describe(*wanted));
}

/// Where a row's codes lie, as a stream of bits.
struct CodeRows {
  TensorView weight;
  int bits;
  std::int64_t row_bytes;

  const std::uint8_t* at(int row, int block) const {
    return reinterpret_cast<const std::uint8_t*>(weight.bytes.data()) + row * row_bytes +
           static_cast<std::int64_t>(block) * kernels::block_inputs * bits / 8;
  }
};

const std::uint8_t* scale_bytes_of(const TensorView& scales, std::int64_t index, int size) {
  return reinterpret_cast<const std::uint8_t*>(scales.bytes.data()) + index * size;
}

StoredMatrix read_affine(StoredTensors& tensors, const CodeRows& codes, const TensorView& scales,
                         int group) {
  const auto type = scale_type(scales.type);
  const auto band = affine_type(codes.bits);
  tensors.check(band.has_value(), "weight",
                "has " + std::to_string(codes.bits) + " bits, expected 2, 3, 4, 5, 6 or 8");
  const TensorView biases = tensors.take("biases", scales.type, scales.shape);
  const int size = kernels::scale_bytes(*type);
  const int blocks = group / kernels::block_inputs;
  const std::int64_t groups = scales.shape[1];
  return {.layout = {*band, {.scale = *type, .minimum = true, .blocks = blocks}},
          .read =
              [=](int row, int first, int count, BlockCodes* result) {
                for (int i = 0; i < count; ++i) {
                  const int block = first + i;
                  const std::int64_t index = row * groups + block / blocks;
                  std::memcpy(result[i].scale, scale_bytes_of(scales, index, size), size);
                  std::memcpy(result[i].minimum, scale_bytes_of(biases, index, size), size);
                  unpack_bits(codes.at(row, block), codes.bits, kernels::block_inputs,
                              result[i].codes);
                  for (std::uint8_t& code : result[i].codes) {
                    code ^= codes.bits == 8 ? 0x80 : 0;
                  }
                }
              },
          .activations = kernels::ActivationFormat::int15};
}

/// mxfp4 and mxfp8 have an exponent per 32 inputs, nvfp4 an e4m3 float per 16.
StoredMatrix read_float_codes(StoredTensors& tensors, const CodeRows& codes,
                              const TensorView& scales, int group) {
  const bool nv = group == 16;
  const auto is_nan = [&](std::byte scale) {
    return nv ? (scale & std::byte{0x7F}) == std::byte{0x7F} : scale == std::byte{0xFF};
  };
  tensors.check(std::ranges::none_of(scales.bytes, is_nan), "scales",
                "has a scale that is not a number");
  const BandType band = nv ? BandType::nvfp4 : codes.bits == 8 ? BandType::e4m3 : BandType::mxfp4;
  const ScaleType type = nv                ? ScaleType::none
                         : codes.bits == 8 ? ScaleType::e8m0
                                           : ScaleType::half_e8m0;
  const std::int64_t groups = scales.shape[1];
  return {.layout = {band, {.scale = type}},
          .read =
              [=](int row, int first, int count, BlockCodes* result) {
                for (int i = 0; i < count; ++i) {
                  const int block = first + i;
                  const std::int64_t index = row * groups + block * (nv ? 2 : 1);
                  std::memcpy(nv ? result[i].sub_scales : result[i].scale,
                              scale_bytes_of(scales, index, 1), nv ? 2 : 1);
                  unpack_bits(codes.at(row, block), codes.bits, kernels::block_inputs,
                              result[i].codes);
                }
              },
          .activations = kernels::ActivationFormat::int15};
}

}  // namespace

StoredMatrix find_mlx(StoredTensors& tensors) {
  const TensorView weight = tensors.take("weight");
  const TensorView scales = tensors.take("scales");
  const int rows = tensors.rows();
  const int columns = tensors.columns();
  const auto is_matrix = [&](const TensorView& tensor) {
    return tensor.shape.size() == 2 && tensor.shape[0] == rows && tensor.shape[1] > 0;
  };
  const std::string expected =
      ", expected " + std::to_string(rows) + " rows for " + std::to_string(columns) + " inputs";
  tensors.check(is_matrix(weight) && weight.shape[1] * 32 % columns == 0, "weight",
                "has shape " + arrays::to_string(weight.shape) + expected);
  tensors.check(is_matrix(scales) && columns % scales.shape[1] == 0, "scales",
                "has shape " + arrays::to_string(scales.shape) + expected);
  const auto bits = static_cast<int>(weight.shape[1] * 32 / columns);
  const auto group = static_cast<int>(columns / scales.shape[1]);
  const CodeRows codes{weight, bits, weight.shape[1] * 4};
  const bool affine = scale_type(scales.type).has_value();
  const bool known =
      affine ? group == 32 || group == 64 || group == 128
             : scales.type == StorageType::u8 &&
                   ((group == 32 && (bits == 4 || bits == 8)) || (group == 16 && bits == 4));
  tensors.check(known, "scales",
                "of type " + std::string(arrays::storage_traits(scales.type).name) + " for " +
                    std::to_string(bits) + " bits in groups of " + std::to_string(group) +
                    " belongs to no scheme of MLX");
  const char* mode = affine ? "affine" : group == 16 ? "nvfp4" : bits == 8 ? "mxfp8" : "mxfp4";
  check_configuration(tensors, {bits, group, mode});
  return affine ? read_affine(tensors, codes, scales, group)
                : read_float_codes(tensors, codes, scales, group);
}

}  // namespace espalier::quantization
