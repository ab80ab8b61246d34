// NF4 as bitsandbytes stores it.
#include <memory>

#include <nlohmann/json.hpp>

#include "quantization/stored_tensors.h"

namespace espalier::quantization {
namespace {

using arrays::StorageType;
using arrays::TensorView;
using kernels::BlockCodes;
using nlohmann::json;

constexpr const char* state_name = "weight.quant_state.bitsandbytes__nf4";

/// A whole number of the description within a sensible range; 0 when there is none.
std::int64_t whole_number(const json& state, const char* key) {
  const auto value = state.find(key);
  if (value == state.end() || !value->is_number_integer() || *value < 1 || *value > (1 << 20)) {
    return 0;
  }
  return value->get<std::int64_t>();
}

json read_state(StoredTensors& tensors) {
  tensors.check(!tensors.contains("weight.quant_state.bitsandbytes__fp4"),
                "weight.quant_state.bitsandbytes__fp4",
                "belongs to the FP4 scheme of bitsandbytes, which is not supported");
  const TensorView state = tensors.take(state_name);
  const auto* text = reinterpret_cast<const char*>(state.bytes.data());
  json values = json::parse(text, text + state.bytes.size(), nullptr, false);
  const json shape = {tensors.rows(), tensors.columns()};
  tensors.check(
      values.is_object() && values.contains("quant_type") && values["quant_type"] == "nf4",
      state_name, "does not describe NF4");
  tensors.check(values.contains("shape") && values["shape"] == shape, state_name,
                "describes another shape than " + shape.dump());
  return values;
}

/// The scale of each block of the flattened matrix.
std::vector<float> read_scales(StoredTensors& tensors, const json& state, std::int64_t blocks) {
  std::vector<float> scales(static_cast<std::size_t>(blocks));
  const TensorView absmax = tensors.take("weight.absmax", {blocks});
  if (absmax.type == StorageType::f32) {
    std::memcpy(scales.data(), absmax.bytes.data(), absmax.bytes.size());
    return scales;
  }
  const std::int64_t nested = whole_number(state, "nested_blocksize");
  tensors.check(absmax.type == StorageType::u8 && nested > 0, "weight.absmax",
                "is neither f32 nor quantized itself");
  const TensorView map = tensors.take("weight.nested_quant_map", StorageType::f32, {256});
  const TensorView nested_absmax =
      tensors.take("weight.nested_absmax", StorageType::f32, {(blocks + nested - 1) / nested});
  const auto found = state.find("nested_offset");
  const float offset = found != state.end() && found->is_number() ? found->get<float>() : 0.0F;
  for (std::int64_t i = 0; i < blocks; ++i) {
    scales[static_cast<std::size_t>(i)] = element<float>(map, element<std::uint8_t>(absmax, i)) *
                                              element<float>(nested_absmax, i / nested) +
                                          offset;
  }
  return scales;
}

}  // namespace

StoredMatrix find_nf4(StoredTensors& tensors) {
  const std::int64_t rows = tensors.rows();
  const std::int64_t columns = tensors.columns();
  const json state = read_state(tensors);
  const std::int64_t block = whole_number(state, "blocksize");
  tensors.check(block > 0 && block % kernels::block_inputs == 0 && columns % block == 0, state_name,
                "has blocks of " + std::to_string(block) + " for rows of " +
                    std::to_string(columns) + " inputs");
  const TensorView weight = tensors.take("weight", StorageType::u8, {rows * columns / 2, 1});
  const TensorView map = tensors.take("weight.quant_map", StorageType::f32, {16});
  for (int i = 0; i < 16; ++i) {
    tensors.check(element<float>(map, i) == kernels::nf4_values[i], "weight.quant_map",
                  "has other values than NF4");
  }
  auto scales =
      std::make_shared<std::vector<float>>(read_scales(tensors, state, rows * columns / block));
  return {.layout = {kernels::BandType::nf4,
                     {.scale = kernels::ScaleType::f32,
                      .blocks = static_cast<int>(block / kernels::block_inputs)}},
          .read = [=](int row, int first, int count, BlockCodes* result) {
            for (int i = 0; i < count; ++i) {
              const std::int64_t input =
                  row * columns + static_cast<std::int64_t>(first + i) * kernels::block_inputs;
              const float scale = (*scales)[static_cast<std::size_t>(input / block)];
              std::memcpy(result[i].scale, &scale, sizeof scale);
              for (int k = 0; k < kernels::block_inputs; k += 2) {
                const auto byte = element<std::uint8_t>(weight, (input + k) / 2);
                result[i].codes[k] = byte >> 4;
                result[i].codes[k + 1] = byte & 15;
              }
            }
          }};
}

}  // namespace espalier::quantization
