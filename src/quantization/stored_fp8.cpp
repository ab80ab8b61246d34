// Floats of 8 bits with scales in a tensor beside them, and NVFP4 as NVIDIA's tools store it.
#include <algorithm>
#include <cmath>

#include "arrays/tensor_index.h"
#include "quantization/stored_tensors.h"

namespace espalier::quantization {
namespace {

using arrays::StorageType;
using arrays::TensorView;
using kernels::BandType;
using kernels::BlockCodes;
using kernels::ScaleType;

void check_e4m3(const StoredTensors& tensors, const std::string& suffix, const TensorView& tensor) {
  const auto is_nan = [](std::byte code) { return (code & std::byte{0x7F}) == std::byte{0x7F}; };
  tensors.check(std::ranges::none_of(tensor.bytes, is_nan), suffix,
                "has a value that is not a number");
}

/// How many rows and columns share a scale, by the shape of the scales: one for all, one a row, one
/// a group of a row's inputs, or one a block.
std::array<std::int64_t, 2> shared_by(const StoredTensors& tensors, const std::string& suffix,
                                      const TensorView& scales) {
  const std::int64_t rows = tensors.rows();
  const std::int64_t columns = tensors.columns();
  const auto& shape = scales.shape;
  const std::int64_t count =
      static_cast<std::int64_t>(scales.bytes.size()) / arrays::storage_traits(scales.type).bytes;
  if (count == 1) {
    return {rows, columns};
  }
  if (count == rows && !shape.empty() && shape[0] == rows) {
    return {1, columns};
  }
  const auto [block_rows, block_columns] = tensors.schemes().scale_block;
  const std::vector<std::int64_t> blocks = {(rows + block_rows - 1) / block_rows,
                                            (columns + block_columns - 1) / block_columns};
  if (shape != blocks && shape.size() == 2 && shape[0] == rows) {
    return {1, tensors.group_of(suffix, shape[1])};
  }
  tensors.check(shape == blocks, suffix,
                "has shape " + arrays::to_string(shape) +
                    ", expected one scale, one or more a row, or " + arrays::to_string(blocks) +
                    " for blocks of " + std::to_string(block_rows) + " x " +
                    std::to_string(block_columns));
  tensors.check(
      block_columns % kernels::block_inputs == 0, suffix,
      "has blocks of " + std::to_string(block_columns) + " inputs, expected a multiple of 32");
  return {block_rows, block_columns};
}

/// Bytes of 8 bits each with a tensor of scales.
StoredMatrix read_scaled(StoredTensors& tensors, BandType band, const std::string& scale_name) {
  const TensorView weight = tensors.take("weight", {tensors.rows(), tensors.columns()});
  const TensorView scales = tensors.take(scale_name);
  const auto type = scale_type(scales.type);
  tensors.check(type.has_value(), scale_name,
                "has type " + std::string(arrays::storage_traits(scales.type).name) +
                    ", expected f32, f16 or bf16");
  const auto [shared_rows, shared_columns] = shared_by(tensors, scale_name, scales);
  const std::int64_t columns = tensors.columns();
  const std::int64_t scale_columns = (columns + shared_columns - 1) / shared_columns;
  const int size = kernels::scale_bytes(*type);
  const auto blocks = static_cast<int>(shared_columns / kernels::block_inputs);
  return {
      .layout = {band, {.scale = *type, .blocks = std::max(blocks, 1)}},
      .read = [=, rows_per_scale = shared_rows](int row, int first, int count, BlockCodes* result) {
        for (int i = 0; i < count; ++i) {
          const int block = first + i;
          const std::int64_t scale = row / rows_per_scale * scale_columns + block / blocks;
          std::memcpy(result[i].scale, scales.bytes.data() + scale * size, size);
          std::memcpy(result[i].codes,
                      weight.bytes.data() + row * columns +
                          static_cast<std::int64_t>(block) * kernels::block_inputs,
                      kernels::block_inputs);
        }
      }};
}

/// 4-bit floats, two in a byte, with an e4m3 scale per 16; `global` multiplies all.
StoredMatrix read_nvfp4(const TensorView& weight, const TensorView& scales, float global,
                        int columns) {
  return {.layout = {BandType::nvfp4, {.scale = ScaleType::f32, .blocks = columns / 32}},
          .read =
              [=](int row, int first, int count, BlockCodes* result) {
                for (int i = 0; i < count; ++i) {
                  const std::int64_t input =
                      static_cast<std::int64_t>(row) * columns + (first + i) * 32;
                  std::memcpy(result[i].scale, &global, sizeof global);
                  std::memcpy(result[i].sub_scales, scales.bytes.data() + input / 16, 2);
                  unpack_bits(
                      reinterpret_cast<const std::uint8_t*>(weight.bytes.data()) + input / 2, 4, 32,
                      result[i].codes);
                }
              },
          .activations = kernels::ActivationFormat::int15};
}

}  // namespace

StoredMatrix find_fp8(StoredTensors& tensors) {
  const TensorView weight = *tensors.peek("weight");
  const bool e4m3 = weight.type == StorageType::f8_e4m3;
  if (e4m3) {
    check_e4m3(tensors, "weight", weight);
  }
  // Scales of activations, which are not rounded to FP8 here.
  tensors.skip("input_scale");
  tensors.skip("activation_scale");
  // DeepSeek's "inverse" scale is what to multiply with too.
  const std::string scale =
      tensors.contains("weight_scale_inv") ? "weight_scale_inv" : "weight_scale";
  return read_scaled(tensors, e4m3 ? BandType::e4m3 : BandType::e5m2, scale);
}

StoredMatrix find_int8(StoredTensors& tensors) {
  tensors.check(!tensors.contains("SCB"), "SCB",
                "belongs to the int8 scheme of bitsandbytes, which is not supported");
  tensors.check(!tensors.contains("weight_zero_point"), "weight_zero_point",
                "makes an asymmetric int8 weight, which is not supported");
  tensors.skip("input_scale");
  StoredMatrix matrix = read_scaled(tensors, BandType::int8, "weight_scale");
  matrix.activations = kernels::ActivationFormat::int15;
  return matrix;
}

StoredMatrix find_nvfp4(StoredTensors& tensors) {
  const int rows = tensors.rows();
  const int columns = tensors.columns();
  const bool packed = tensors.contains("weight_packed");
  const TensorView weight =
      tensors.take(packed ? "weight_packed" : "weight", StorageType::u8, {rows, columns / 2});
  const TensorView scales =
      tensors.take("weight_scale", StorageType::f8_e4m3, {rows, columns / 16});
  check_e4m3(tensors, "weight_scale", scales);
  const std::string name = packed ? "weight_global_scale" : "weight_scale_2";
  const TensorView global = tensors.take(name);
  tensors.check(global.type == StorageType::f32 && global.bytes.size() == sizeof(float), name,
                "is not a single f32 number");
  tensors.skip("input_scale");
  tensors.skip("input_global_scale");
  const float factor = element<float>(global, 0);
  tensors.check(std::isfinite(factor) && factor != 0, name, "is zero, infinite or not a number");
  // compressed-tensors divides by what ModelOpt multiplies with.
  return read_nvfp4(weight, scales, packed ? 1.0F / factor : factor, columns);
}

}  // namespace espalier::quantization
