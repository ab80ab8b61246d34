// Conversions of checkpoints that other tools quantized.
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "arrays/safetensors.h"
#include "arrays/safetensors_writer.h"
#include "base/error.h"
#include "conversion/convert.h"
#include "mlx/mlx.h"
#include "support/temporary_folder.h"

namespace espalier::conversion {
namespace {

namespace fs = std::filesystem;
namespace mx = mlx::core;

using arrays::SafetensorsWriter;
using arrays::StorageType;
using nlohmann::json;
using testing::HasSubstr;

constexpr int rows = 96;
constexpr int columns = 64;
constexpr const char* module_name = "model.layers.0.mlp.up_proj";

struct Stored {
  SafetensorsWriter::Entry entry;
  std::vector<std::byte> bytes;
};

template <typename T>
Stored stored(const std::string& suffix, StorageType type, std::vector<std::int64_t> shape,
              const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {{module_name + suffix, type, std::move(shape)}, {bytes.begin(), bytes.end()}};
}

/// The other tensors of a Llama of one layer, all zeros.
std::vector<SafetensorsWriter::Entry> other_entries() {
  std::vector<SafetensorsWriter::Entry> entries;
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    std::string full = "model.";
    full.append(name).append(".weight");
    entries.push_back({std::move(full), StorageType::f32, std::move(shape)});
  };
  for (const char* name :
       {"norm", "layers.0.input_layernorm", "layers.0.post_attention_layernorm"}) {
    add(name, {columns});
  }
  for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
    add(std::string("layers.0.self_attn.") + name, {columns, columns});
  }
  add("embed_tokens", {8, columns});
  add("layers.0.mlp.gate_proj", {rows, columns});
  add("layers.0.mlp.down_proj", {columns, rows});
  return entries;
}

/// A checkpoint of which one matrix is quantized; the others stay as they are.
void write_checkpoint(const fs::path& folder, const json& quantization,
                      std::vector<Stored> tensors) {
  fs::create_directory(folder);
  std::ofstream(folder / "config.json") << json{{"model_type", "llama"},
                                                {"hidden_size", columns},
                                                {"intermediate_size", rows},
                                                {"num_hidden_layers", 1},
                                                {"num_attention_heads", 1},
                                                {"num_key_value_heads", 1},
                                                {"vocab_size", 8},
                                                {"hidden_act", "silu"},
                                                {"max_position_embeddings", 64},
                                                {"rms_norm_eps", 1e-5},
                                                {"rope_theta", 10000.0},
                                                {"tie_word_embeddings", true},
                                                {"quantization_config", quantization}};
  for (const SafetensorsWriter::Entry& entry : other_entries()) {
    std::size_t bytes = sizeof(float);
    for (const std::int64_t extent : entry.shape) bytes *= static_cast<std::size_t>(extent);
    tensors.push_back({entry, std::vector<std::byte>(bytes)});
  }
  std::vector<SafetensorsWriter::Entry> entries;
  for (const Stored& tensor : tensors) entries.push_back(tensor.entry);
  SafetensorsWriter writer(folder / "model.safetensors", entries);
  for (const Stored& tensor : tensors) writer.append(tensor.bytes);
  writer.finish();
}

class SchemeTensors : public testing::Test {
 protected:
  /// The matrix as f32 after `convert --dequantize`.
  std::vector<float> dequantized() const {
    ConvertOptions options;
    options.source = folder_.path() / "source";
    options.destination = folder_.path() / "plain";
    options.dequantize = true;
    options.dtype = StorageType::f32;
    convert(options);
    const auto file = arrays::open_safetensors_folder(options.destination);
    EXPECT_EQ(file->tensors().size(), other_entries().size() + 1);
    EXPECT_FALSE(json::parse(std::ifstream(options.destination / "config.json"))
                     .contains("quantization_config"));
    const auto* tensor = file->find(std::string(module_name) + ".weight");
    if (tensor == nullptr) return {};
    EXPECT_EQ(tensor->shape, (std::vector<std::int64_t>{rows, columns}));
    std::vector<float> values(tensor->bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
    return values;
  }

  const tests::TemporaryFolder folder_;
};

TEST_F(SchemeTensors, Fp8BecomesCodeTimesItsScale) {
  constexpr int block = 32;
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const auto code = static_cast<std::uint8_t>(i * 37 % 256);
    codes[i] = (code & 0x7FU) == 0x7FU ? 0 : code;  // no number
  }
  std::vector<float> scales;
  for (int i = 0; i < rows / block * columns / block; ++i) {
    scales.push_back(0.25F * static_cast<float>(i + 1));
  }
  write_checkpoint(
      folder_.path() / "source", {{"quant_method", "fp8"}, {"weight_block_size", {block, block}}},
      {stored(".weight", StorageType::f8_e4m3, {rows, columns}, codes),
       stored(".weight_scale_inv", StorageType::f32, {rows / block, columns / block}, scales)});
  mx::array numbers =
      mx::from_fp8(mx::array(codes.data(), {rows, columns}, mx::uint8), mx::float32);
  numbers.eval();
  const std::vector<float> actual = dequantized();
  ASSERT_EQ(actual.size(), codes.size());
  for (int row = 0; row < rows; ++row) {
    for (int k = 0; k < columns; ++k) {
      const int index = row * columns + k;
      const int scale = row / block * (columns / block) + k / block;
      ASSERT_EQ(actual[index], numbers.data<float>()[index] * scales[scale]) << row << ' ' << k;
    }
  }
}

/// GPTQ: eight codes down each word, zero points less one.
TEST_F(SchemeTensors, GptqBecomesItsValues) {
  constexpr int group = 32;
  const auto code = [](int row, int k) { return (row * 5 + k * 3) % 16; };
  const auto zero = [](int row, int index) { return (row + index) % 15; };
  const auto scale = [](int row, int index) {
    return 0.5F + static_cast<float>(row) + static_cast<float>(index) / 4;
  };
  std::vector<std::uint32_t> words(columns / 8 * rows);
  std::vector<std::uint32_t> zeros(columns / group * rows / 8);
  std::vector<float> scales;
  for (int row = 0; row < rows; ++row) {
    for (int k = 0; k < columns; ++k) {
      words[k / 8 * rows + row] |= static_cast<std::uint32_t>(code(row, k)) << (4 * (k % 8));
    }
  }
  for (int index = 0; index < columns / group; ++index) {
    for (int row = 0; row < rows; ++row) {
      zeros[index * rows / 8 + row / 8] |= static_cast<std::uint32_t>(zero(row, index))
                                           << (4 * (row % 8));
      scales.push_back(scale(row, index));
    }
  }
  const json settings = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", group}};
  const std::vector<Stored> tensors = {
      stored(".qweight", StorageType::i32, {columns / 8, rows}, words),
      stored(".qzeros", StorageType::i32, {columns / group, rows / 8}, zeros),
      stored(".scales", StorageType::f32, {columns / group, rows}, scales)};
  // Without settings the tensors tell, as they do when such a model is loaded.
  const json dynamic = {
      {"quant_method", "gptq"}, {"bits", 8}, {"dynamic", {{"+:.*up_proj", {{"bits", 4}}}}}};
  const json round = {{"quant_method", "auto-round"},
                      {"packing_format", "auto_round:auto_gptq"},
                      {"bits", 4},
                      {"group_size", group},
                      {"data_type", "int"}};
  for (const json& given : {settings, json{{"quant_method", "gptq"}}, json(), dynamic, round}) {
    fs::remove_all(folder_.path() / "source");
    fs::remove_all(folder_.path() / "plain");
    write_checkpoint(folder_.path() / "source", given, tensors);
    std::ofstream(folder_.path() / "source" / "quantize_config.json") << settings;
    const std::vector<float> actual = dequantized();
    EXPECT_FALSE(fs::exists(folder_.path() / "plain" / "quantize_config.json"));
    ASSERT_EQ(actual.size(), static_cast<std::size_t>(rows * columns));
    for (int row = 0; row < rows; ++row) {
      for (int k = 0; k < columns; ++k) {
        const int index = k / group;
        ASSERT_EQ(actual[row * columns + k],
                  scale(row, index) * static_cast<float>(code(row, k) - zero(row, index) - 1));
      }
    }
  }
}

TEST_F(SchemeTensors, WhatIsMissingOrUnknownIsNamed) {
  const std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * columns));
  const auto refused = [&](const json& settings, const std::string& part) {
    fs::remove_all(folder_.path() / "source");
    write_checkpoint(folder_.path() / "source", settings,
                     {stored(".weight", StorageType::f8_e4m3, {rows, columns}, codes)});
    ConvertOptions options;
    options.source = folder_.path() / "source";
    options.destination = folder_.path() / "out";
    options.quantize = quantization::MlxFormat{};
    try {
      convert(options);
      FAIL() << "not refused: " << part;
    } catch (const base::LoadError& error) {
      EXPECT_THAT(error.what(), HasSubstr(part));
    }
  };
  refused({{"quant_method", "fp8"}}, "model.layers.0.mlp.up_proj.weight_scale");
  refused({{"quant_method", "novel"}}, "novel");
  refused({{"quant_method", "auto-round"}, {"packing_format", "auto_round:fp8"}}, "auto_round:fp8");
  refused({{"quant_method", "auto-round"}, {"backend", "auto_round:exllamav2"}},
          "backend' is 'auto_round:exllamav2'");
  refused({{"quant_method", "modelopt"}, {"quant_algo", "W4A8_AWQ"}}, "W4A8_AWQ");
  const json turned = {{"config_groups", {{"u", {{"type", "hadamard"}}}}}};
  refused({{"quant_method", "compressed-tensors"}, {"transform_config", turned}},
          "transform_config' turns activations");
}

}  // namespace
}  // namespace espalier::conversion
