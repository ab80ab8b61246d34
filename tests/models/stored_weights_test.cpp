// Loading one tiny checkpoint with its weights stored in other ways: MLX schemes mixed by module,
// the makers' own names, values that are no numbers.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "mlx/mlx.h"
#include "models/model.h"
#include "support/fixtures.h"
#include "support/model_logits.h"
#include "support/stored_tensors.h"
#include "support/temporary_folder.h"

namespace espalier::models {
namespace {

namespace fs = std::filesystem;
namespace mx = mlx::core;
using testing::AllOf;
using testing::HasSubstr;

using Tensor = tests::StoredTensor;
using Tensors = tests::StoredTensors;
using tests::to_bf16;
using tests::to_tensor;

class StoredWeights : public testing::Test {
 protected:
  void SetUp() override {
    const auto fixtures = tests::fixture_folder("tiny-text");
    if (!fixtures) GTEST_SKIP() << "shared/fixtures/tiny-text.tar.xz is absent";
    const fs::path source = *fixtures / "a" / "llama";
    std::ifstream(source / "config.json") >> config_;
    tensors_ = tests::read_tensors(source / "model.safetensors");
  }

  void write(const char* settings, const nlohmann::json& config) const {
    std::ofstream(folder_.path() / settings) << config;
    tests::write_tensors(folder_.path() / "model.safetensors", tensors_);
  }

  /// The logits of 24 tokens.
  std::vector<float> logits(const LoadOptions& options = {.dtype = mx::float32}) const {
    return tests::model_logits(folder_.path(), tests::different_tokens(24), options);
  }

  std::string load_error(const LoadOptions& options = {}) const {
    try {
      load_model(folder_.path(), options);
    } catch (const base::LoadError& error) {
      return error.what();
    }
    return "loaded";
  }

  /// Quantizes every matrix by MLX itself, or replaces it by what MLX makes of the codes.
  void quantize(bool keep_codes) {
    nlohmann::json settings = {{"group_size", 64}, {"bits", 4}, {"mode", "affine"}};
    const auto matrices = tensors_;
    int index = 0;
    for (const auto& [name, tensor] : matrices) {
      if (tensor.shape.size() != 2) continue;
      const std::string module = name.substr(0, name.size() - std::strlen(".weight"));
      // The default, other bits and groups, the float schemes, and not quantized, in turn.
      struct Scheme {
        int group;
        int bits;
        const char* mode;
      };
      constexpr Scheme schemes[] = {{64, 4, "affine"}, {32, 8, "affine"}, {64, 3, "affine"},
                                    {32, 5, "affine"}, {64, 6, "affine"}, {32, 2, "affine"},
                                    {32, 4, "mxfp4"},  {32, 8, "mxfp8"},  {16, 4, "nvfp4"}};
      const std::size_t choice = static_cast<std::size_t>(index++) % (std::size(schemes) + 1);
      if (choice == std::size(schemes)) {
        settings[module] = false;
        continue;
      }
      const auto& [group, bits, mode] = schemes[choice];
      if (choice > 0) {
        settings[module] = {{"group_size", group}, {"bits", bits}, {"mode", mode}};
      }
      const auto parts = mx::quantize(to_bf16(tensor), group, bits, mode);
      if (keep_codes) {
        tensors_[name] = to_tensor(parts[0]);
        tensors_[module + ".scales"] = to_tensor(parts[1]);
        if (parts.size() > 2) tensors_[module + ".biases"] = to_tensor(parts[2]);
      } else {
        std::optional<mx::array> biases;
        if (parts.size() > 2) biases = mx::astype(parts[2], mx::float32);
        const bool affine = parts.size() > 2;
        const auto scales = affine ? mx::astype(parts[1], mx::float32) : parts[1];
        tensors_[name] = to_tensor(
            mx::astype(mx::dequantize(parts[0], scales, biases, group, bits, mode), mx::float32));
      }
    }
    if (keep_codes) config_["quantization"] = settings;
  }

  const tests::TemporaryFolder folder_;
  nlohmann::json config_;
  Tensors tensors_;
};

TEST_F(StoredWeights, MlxSchemesMixedByModuleGiveTheLogitsOfTheirValues) {
  const Tensors original = tensors_;
  const nlohmann::json plain = config_;
  quantize(false);
  write("config.json", plain);
  const std::vector<float> expected = logits();
  tensors_ = original;
  quantize(true);
  write("config.json", config_);
  for (const auto format : {layers::ActivationFormat::f32, layers::ActivationFormat::int15}) {
    const std::vector<float> actual = logits({.dtype = mx::float32, .activations = format});
    double squares = 0;
    double difference = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      squares += double{expected[i]} * expected[i];
      difference = std::max(difference, std::abs(double{actual[i]} - expected[i]));
    }
    const double size = std::sqrt(squares / static_cast<double>(expected.size()));
    EXPECT_LT(difference, (format == layers::ActivationFormat::f32 ? 2e-5 : 1e-3) * size);
  }
  config_["quantization"]["model.layers.0.mlp.up_proj"] = {{"bits", 6}, {"group_size", 128}};
  write("config.json", config_);
  EXPECT_THAT(load_error(),
              AllOf(HasSubstr("model.layers.0.mlp.up_proj.weight"), HasSubstr("6 bits")));
}

/// Of gpt-oss with layers in 8 bits, mlx-lm's file says no mode for these.
TEST_F(StoredWeights, AModuleWithItsOwnMlxSettingsHasNoneOfTheOthers) {
  const std::string module = "model.layers.0.mlp.up_proj";
  const auto parts = mx::quantize(to_bf16(tensors_.at(module + ".weight")), 64, 8);
  tensors_[module + ".weight"] = to_tensor(parts[0]);
  tensors_[module + ".scales"] = to_tensor(parts[1]);
  tensors_[module + ".biases"] = to_tensor(parts[2]);
  config_["quantization"] = {{"group_size", 32}, {"bits", 4}, {"mode", "mxfp4"}};
  config_["quantization"][module] = {{"group_size", 64}, {"bits", 8}};
  write("config.json", config_);
  EXPECT_EQ(load_error(), "loaded");
}

TEST_F(StoredWeights, RefusesMlxSettingsThatMlxDoesNotHave) {
  const auto refused = [&](const nlohmann::json& settings, const char* part) {
    config_["quantization"] = settings;
    write("config.json", config_);
    EXPECT_THAT(load_error(), HasSubstr(part));
  };
  refused({{"group_size", 64}, {"bits", 99}}, "'quantization.bits' is 99 in groups of 64");
  refused({{"group_size", 0}, {"bits", 4}}, "'quantization.bits' is 4 in groups of 0");
  refused({{"group_size", 64}, {"bits", 4}, {"mode", "mxfp4"}}, "MLX's mode mxfp4");
  refused({{"mode", "mxfp5"}}, "'quantization.mode' is 'mxfp5'");
  refused({{"group_size", 64}, {"bits", 4}, {"lm_head", {{"bits", 7}}}},
          "'quantization.lm_head.bits' is 7");
}

TEST_F(StoredWeights, OnlyZerosMayBeABiasThatTheModelDoesNotHave) {
  using arrays::StorageType;
  const std::string module = "model.layers.0.mlp.up_proj";
  const std::vector<std::int64_t> shape = tensors_.at(module + ".weight").shape;
  const std::int64_t rows = shape[0];
  const std::int64_t columns = shape[1];
  const auto zeros = [](StorageType type, const std::vector<std::int64_t>& extents) {
    auto bytes = static_cast<std::size_t>(arrays::storage_traits(type).bytes);
    for (const std::int64_t extent : extents) bytes *= static_cast<std::size_t>(extent);
    return Tensor{type, extents, std::vector<std::byte>(bytes)};
  };
  tensors_.erase(module + ".weight");
  tensors_[module + ".qweight"] = zeros(StorageType::i32, {columns / 8, rows});
  tensors_[module + ".qzeros"] = zeros(StorageType::i32, {columns / 32, rows / 8});
  tensors_[module + ".scales"] = zeros(StorageType::f16, {columns / 32, rows});
  tensors_[module + ".bias"] = zeros(StorageType::f16, {rows});
  config_["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}};
  write("config.json", config_);
  EXPECT_EQ(load_error(), "loaded");
  tensors_[module + ".bias"].bytes.back() = std::byte{0x3C};
  write("config.json", config_);
  EXPECT_THAT(load_error(), HasSubstr("no use for the tensors '" + module + ".bias'"));
}

TEST_F(StoredWeights, MakersNamesGiveTheSameLogits) {
  write("config.json", config_);
  const std::vector<float> expected = logits();
  fs::remove(folder_.path() / "config.json");
  const int heads = config_["num_attention_heads"];
  const int kv_heads = config_["num_key_value_heads"];
  tensors_ = tests::in_original_layout(tensors_, heads, kv_heads);
  write("params.json", {{"dim", config_["hidden_size"]},
                        {"n_layers", config_["num_hidden_layers"]},
                        {"n_heads", heads},
                        {"n_kv_heads", kv_heads},
                        {"hidden_dim", config_["intermediate_size"]},
                        {"norm_eps", config_["rms_norm_eps"]},
                        {"rope_theta", config_["rope_parameters"]["rope_theta"]},
                        {"vocab_size", config_["vocab_size"]}});
  const std::vector<float> actual = logits();
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], 2e-5 * (1 + std::abs(expected[i])));
  }
  write("params.json", {{"dim", 64}, {"twist", 1}});
  EXPECT_THAT(load_error(), AllOf(HasSubstr("params.json"), HasSubstr("'twist'")));
}

TEST_F(StoredWeights, ChecksValuesOnRequest) {
  Tensor& tensor = tensors_["model.layers.1.mlp.up_proj.weight"];
  const auto columns = static_cast<std::size_t>(tensor.shape[1]);
  const std::uint16_t infinite = 0x7F80;
  std::memcpy(tensor.bytes.data() + 2 * (17 * columns + 5), &infinite, sizeof infinite);
  write("config.json", config_);
  EXPECT_EQ(load_error(), "loaded");
  EXPECT_THAT(load_error({.dtype = {}, .activations = {}, .check_weights = true}),
              AllOf(HasSubstr("model.layers.1.mlp.up_proj.weight"), HasSubstr("row 17, column 5")));
}

}  // namespace
}  // namespace espalier::models
