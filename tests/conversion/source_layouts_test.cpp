// Conversions of checkpoints in layouts other than Hugging Face's.
#include "conversion/source_layouts.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "conversion/convert.h"
#include "mlx/mlx.h"
#include "models/model.h"
#include "support/fixtures.h"
#include "support/model_logits.h"
#include "support/stored_tensors.h"
#include "support/temporary_folder.h"

namespace espalier::conversion {
namespace {

namespace fs = std::filesystem;
namespace mx = mlx::core;

using nlohmann::json;
using testing::HasSubstr;
using tests::StoredTensor;
using tests::StoredTensors;

/// The logits of 24 tokens.
std::vector<float> logits(const fs::path& path) {
  return tests::model_logits(path, tests::different_tokens(24), tests::in_floats());
}

void expect_same_logits(const std::vector<float>& expected, const std::vector<float>& actual) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], 2e-5 * (1 + std::abs(expected[i]))) << i;
  }
}

void expect_same_tensors(const StoredTensors& expected, const StoredTensors& actual) {
  EXPECT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    const auto found = actual.find(name);
    ASSERT_NE(found, actual.end()) << name;
    EXPECT_EQ(found->second.type, tensor.type) << name;
    EXPECT_EQ(found->second.shape, tensor.shape) << name;
    EXPECT_EQ(found->second.bytes, tensor.bytes) << name;
  }
}

class SourceLayouts : public testing::Test {
 protected:
  void SetUp() override {
    const auto folder = tests::fixture_folder("tiny-text");
    if (!folder) GTEST_SKIP() << "shared/fixtures/tiny-text.tar.xz is absent";
    fixtures_ = *folder / "a";
  }

  fs::path write(const std::string& name, const char* settings, const json& config,
                 const StoredTensors& tensors) const {
    const fs::path folder = folder_.path() / name;
    fs::create_directory(folder);
    std::ofstream(folder / settings) << config;
    tests::write_tensors(folder / "model.safetensors", tensors);
    return folder;
  }

  json config_of(const std::string& model) const {
    return json::parse(std::ifstream(fixtures_ / model / "config.json"));
  }

  ConvertOptions options(const fs::path& source, const std::string& name) const {
    ConvertOptions result;
    result.source = source;
    result.destination = folder_.path() / name;
    return result;
  }

  fs::path fixtures_;
  tests::TemporaryFolder folder_;
};

TEST_F(SourceLayouts, MakersNamesBecomeThoseOfHuggingFace) {
  const json config = config_of("llama");
  const int heads = config["num_attention_heads"];
  const int kv_heads = config["num_key_value_heads"];
  const StoredTensors tensors = tests::read_tensors(fixtures_ / "llama" / "model.safetensors");
  StoredTensors original = tests::in_original_layout(tensors, heads, kv_heads);
  original["rope.freqs"] = tests::to_tensor(mx::zeros({8}));
  const json params = {{"dim", config["hidden_size"]},
                       {"n_layers", config["num_hidden_layers"]},
                       {"n_heads", heads},
                       {"n_kv_heads", kv_heads},
                       {"hidden_dim", config["intermediate_size"]},
                       {"norm_eps", config["rms_norm_eps"]},
                       {"rope_theta", config["rope_parameters"]["rope_theta"]},
                       {"vocab_size", config["vocab_size"]}};
  const fs::path source = write("source", "params.json", params, original);
  ConvertOptions cast = options(source, "cast");
  cast.dtype = arrays::StorageType::bf16;
  convert(cast);
  expect_same_tensors(tensors, tests::read_tensors(cast.destination / "model.safetensors"));
  EXPECT_FALSE(fs::exists(cast.destination / "params.json"));
  const json written = json::parse(std::ifstream(cast.destination / "config.json"));
  EXPECT_EQ(written["architectures"], json::array({"LlamaForCausalLM"}));
  expect_same_logits(logits(fixtures_ / "llama"), logits(cast.destination));

  ConvertOptions gguf = options(source, "model.gguf");
  gguf.gguf = arrays::StorageType::f32;
  convert(gguf);
  expect_same_logits(logits(fixtures_ / "llama"), logits(gguf.destination));

  original["layers.0.twist.weight"] = original["norm.weight"];
  ConvertOptions unknown = options(write("unknown", "params.json", params, original), "out");
  unknown.quantize = quantization::MlxFormat{};
  try {
    convert(unknown);
    FAIL() << "not refused";
  } catch (const base::LoadError& error) {
    EXPECT_THAT(error.what(), HasSubstr("layers.0.twist.weight"));
  }
}

/// gpt-oss with its experts as OpenAI publishes them, and with the values of their codes.
class GptOss : public SourceLayouts {
 protected:
  void SetUp() override {
    SourceLayouts::SetUp();
    if (IsSkipped()) return;
    packed_ = plain_ = tests::read_tensors(fixtures_ / "gpt_oss" / "model.safetensors");
    for (const auto& [name, tensor] : tests::StoredTensors(plain_)) {
      if (!name.ends_with("_proj") || name.find("experts") == std::string::npos) continue;
      // Plain experts lie [inputs, outputs].
      const auto rows = mx::contiguous(mx::swapaxes(tests::to_bf16(tensor), 1, 2));
      const auto parts = mx::quantize(rows, 32, 4, "mxfp4");
      const auto values = mx::dequantize(parts[0], parts[1], std::nullopt, 32, 4, "mxfp4",
                                         std::nullopt, mx::bfloat16);
      plain_[name] = tests::to_tensor(mx::swapaxes(values, 1, 2));
      StoredTensor codes = tests::to_tensor(parts[0]);
      codes.type = arrays::StorageType::u8;
      codes.shape.back() /= 4;
      codes.shape.push_back(16);
      packed_.erase(name);
      packed_[name + "_blocks"] = codes;
      packed_[name + "_scales"] = tests::to_tensor(parts[1]);
    }
    const json config = config_of("gpt_oss");
    plain_folder_ = write("plain", "config.json", config, plain_);
    json packed_config = config;
    packed_config["quantization_config"] = {
        {"quant_method", "mxfp4"}, {"modules_to_not_convert", {"model.layers.*.self_attn"}}};
    packed_folder_ = write("packed", "config.json", packed_config, packed_);
  }

  StoredTensors plain_;
  StoredTensors packed_;
  fs::path plain_folder_;
  fs::path packed_folder_;
};

TEST_F(GptOss, CodesOfTheMakerLoad) {
  expect_same_logits(logits(plain_folder_), logits(packed_folder_));
}

TEST_F(GptOss, PartsBecomeThoseOfMlxBitForBit) {
  const std::vector<float> expected = logits(plain_folder_);
  ConvertOptions cast = options(packed_folder_, "cast");
  cast.dtype = arrays::StorageType::bf16;
  convert(cast);
  const StoredTensors written = tests::read_tensors(cast.destination / "model.safetensors");
  const std::string experts = "model.layers.1.mlp.experts.";
  const StoredTensor& up = written.at(experts + "up_proj.weight");
  const StoredTensor& blocks = packed_.at(experts + "gate_up_proj_blocks");
  EXPECT_EQ(up.shape, (std::vector<std::int64_t>{8, 128, 64 / 8}));
  constexpr std::size_t row = 64 / 2;  // bytes of 64 codes
  ASSERT_EQ(2 * up.bytes.size(), blocks.bytes.size());
  for (std::size_t i = 0; i < up.bytes.size(); ++i) {
    ASSERT_EQ(up.bytes[i], blocks.bytes[(i / row * 2 + 1) * row + i % row]) << i;
  }
  EXPECT_EQ(written.at(experts + "gate_proj.bias").shape, (std::vector<std::int64_t>{8, 128}));
  EXPECT_EQ(written.at(experts + "down_proj.scales").type, arrays::StorageType::u8);
  const json config = json::parse(std::ifstream(cast.destination / "config.json"));
  EXPECT_EQ(config["quantization"], json({{"group_size", 32}, {"bits", 4}, {"mode", "mxfp4"}}));
  expect_same_logits(expected, logits(cast.destination));

  ConvertOptions plain = options(packed_folder_, "dequantized");
  plain.dequantize = true;
  convert(plain);
  expect_same_logits(expected, logits(plain.destination));
}

TEST_F(GptOss, WhatIsMissingIsNamed) {
  packed_.erase("model.layers.2.mlp.experts.down_proj_scales");
  tests::write_tensors(packed_folder_ / "model.safetensors", packed_);
  try {
    models::load_model(packed_folder_, {});
    FAIL() << "loaded";
  } catch (const base::LoadError& error) {
    EXPECT_THAT(error.what(), HasSubstr("layers.2.mlp.experts.down_proj_scales"));
  }
}

TEST_F(SourceLayouts, ShardsAreWrittenAndRead) {
  const fs::path source = fixtures_ / "llama";
  ConvertOptions many = options(source, "many");
  many.dtype = arrays::StorageType::f32;
  many.shard_bytes = 100'000;
  convert(many);
  const json index = json::parse(std::ifstream(many.destination / "model.safetensors.index.json"));
  const StoredTensors tensors = tests::read_tensors(source / "model.safetensors");
  EXPECT_EQ(index["weight_map"].size(), tensors.size());
  int files = 0;
  for (const auto& entry : fs::directory_iterator(many.destination)) {
    if (entry.path().extension() != ".safetensors") continue;
    ++files;
    for (const auto& [name, tensor] : tests::read_tensors(entry.path())) {
      EXPECT_EQ(index["weight_map"][name], entry.path().filename().string());
    }
  }
  EXPECT_GT(files, 2);
  expect_same_logits(logits(source), logits(many.destination));
  ConvertOptions one = options(many.destination, "one");
  one.dtype = arrays::StorageType::bf16;
  convert(one);
  expect_same_tensors(tensors, tests::read_tensors(one.destination / "model.safetensors"));
}

}  // namespace
}  // namespace espalier::conversion
