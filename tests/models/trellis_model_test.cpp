// A model whose weights are trellis-coded in every way that there is, against the same numbers in
// f32, and what its configuration may say.
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "mlx/mlx.h"
#include "models/model.h"
#include "support/temporary_folder.h"
#include "support/trellis_checkpoint.h"

namespace espalier::models {
namespace {

namespace mx = mlx::core;
using layers::ActivationFormat;
using layers::TrellisContract;
using testing::HasSubstr;
using tests::TrellisCheckpoint;

constexpr const char* down = "model.layers.0.mlp.down_proj";

class TrellisModel : public testing::Test {
 protected:
  std::filesystem::path coded() const { return folder_.path() / "coded"; }
  std::filesystem::path dense() const { return folder_.path() / "dense"; }

  /// Logits of 24 tokens in pieces of `chunk`.
  static std::vector<float> logits(Model& model, int chunk) {
    state::KvPool pool(model.kv_layers(), 8, mx::float32,
                       state::RecurrentOptions{.layers = {}, .slots = 1});
    state::SequenceState state(pool);
    std::mt19937 random(3);
    std::vector<float> all;
    for (int first = 0; first < 24; first += chunk) {
      const int rows = std::min(chunk, 24 - first);
      Batch batch;
      batch.sequences.push_back({.first_row = 0, .rows = rows, .state = &state});
      for (int row = 0; row < rows; ++row) {
        batch.tokens.push_back(static_cast<std::int32_t>(random() % TrellisCheckpoint::vocabulary));
        batch.logits_rows.push_back(row);
      }
      mx::array result = model.forward(batch, pool);
      result.eval();
      all.insert(all.end(), result.data<float>(), result.data<float>() + result.size());
    }
    return all;
  }

  std::vector<float> logits(const std::filesystem::path& path, const LoadOptions& options,
                            int chunk) const {
    return logits(*load_model(path, options), chunk);
  }

  /// Root of the mean square of the difference over that of `expected`.
  static double distance(const std::vector<float>& got, const std::vector<float>& expected) {
    double error = 0;
    double size = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      error += std::pow(got.at(i) - expected[i], 2);
      size += std::pow(expected[i], 2);
    }
    return std::sqrt(error / size);
  }

  /// What loading says after a change of the configuration.
  std::string load_error(const std::function<void(nlohmann::json&)>& change,
                         const LoadOptions& options = {}) {
    TrellisCheckpoint().write(coded(), dense());
    nlohmann::json config = TrellisCheckpoint().config();
    change(config["quantization"]);
    std::ofstream(coded() / "config.json") << config;
    try {
      load_model(coded(), options);
    } catch (const base::LoadError& error) {
      return error.what();
    }
    return "loaded";
  }

  tests::TemporaryFolder folder_;
};

TEST_F(TrellisModel, AnswersAsTheDenseWeights) {
  TrellisCheckpoint().write(coded(), dense());
  const LoadOptions floats{.dtype = mx::float32, .activations = ActivationFormat::f32};
  const std::vector<float> expected = logits(dense(), floats, 24);
  EXPECT_LT(distance(logits(coded(), floats, 24), expected), 1e-5);
  EXPECT_LT(distance(logits(coded(), {.dtype = mx::float32}, 24), expected), 1e-3);
  EXPECT_LT(
      distance(logits(coded(), {.dtype = mx::float32, .activations = ActivationFormat::int8}, 24),
               expected),
      0.1);
}

TEST_F(TrellisModel, RowsDoNotDependOnTheChunk) {
  TrellisCheckpoint().write(coded(), dense());
  const auto model = load_model(coded(), {.dtype = mx::float32});
  const std::vector<float> alone = logits(*model, 1);
  for (const int chunk : {3, 4, 7, 24}) {
    EXPECT_EQ(logits(*model, chunk), alone) << "chunk " << chunk;
  }
}

// Products run on the GPU, what surrounds them by the CPU's kernels.
TEST_F(TrellisModel, GivesTheSameBitsOnAGpu) {
  if (!mx::is_available(mx::Device::gpu)) {
    GTEST_SKIP() << "MLX has no GPU here";
  }
  TrellisCheckpoint().write(coded(), dense());
  const mx::Device before = mx::default_device();
  for (const auto activations : {ActivationFormat::int15, ActivationFormat::int8}) {
    for (const int chunk : {1, 24}) {
      const LoadOptions options{.dtype = mx::bfloat16, .activations = activations};
      mx::set_default_device(mx::Device::cpu);
      const std::vector<float> expected = logits(coded(), options, chunk);
      mx::set_default_device(mx::Device::gpu);
      EXPECT_EQ(logits(coded(), options, chunk), expected) << "chunk " << chunk;
    }
  }
  mx::set_default_device(before);
}

// In f32 the two contracts of the reference differ from the exact weights by roundings only; in
// bf16 the wide one rounds weights.
TEST_F(TrellisModel, TheReferencesContracts) {
  TrellisCheckpoint().write(coded(), dense());
  const LoadOptions floats{.dtype = mx::float32, .activations = ActivationFormat::f32};
  LoadOptions reference = floats;
  reference.trellis = TrellisContract::reference;
  const std::vector<float> expected = logits(dense(), floats, 24);
  EXPECT_LT(distance(logits(coded(), reference, 3), expected), 1e-5);
  EXPECT_LT(distance(logits(coded(), reference, 24), expected), 1e-5);
  reference.dtype = mx::bfloat16;
  EXPECT_LT(distance(logits(coded(), reference, 3), expected), 0.05);
  EXPECT_LT(distance(logits(coded(), reference, 24), expected), 0.05);
}

TEST_F(TrellisModel, ReferenceContractNeedsTrellisWeights) {
  TrellisCheckpoint().write(coded(), dense());
  EXPECT_THROW(load_model(dense(), {.dtype = mx::float32, .trellis = TrellisContract::reference}),
               base::LoadError);
}

TEST_F(TrellisModel, WhatTheConfigurationMayLeaveOut) {
  EXPECT_EQ(load_error([](nlohmann::json& settings) {
              for (const char* layer : {"0", "1"}) {
                const std::string path = std::string("model.layers.") + layer;
                settings[path + ".self_attn.q_proj"]["trellis"]["code"] = "1mad";
              }
              settings[down]["trellis"].erase("code");
              settings["model.layers.0.mlp.gate_proj"]["trellis"]["axis"] = 7;
            }),
            "loaded");
}

TEST_F(TrellisModel, TheDefaultMayBeTrellis) {
  const std::string error = load_error([](nlohmann::json& settings) {
    settings["mode"] = "trellis";
    settings["group_size"] = 256;
    settings["trellis"] = {{"L", 12}, {"axis", 0}};
    settings.erase(down);
    for (const char* plain : {"model.embed_tokens", "lm_head", "model.layers.0.self_attn.v_proj",
                              "model.layers.0.self_attn.o_proj"}) {
      settings[plain] = false;
    }
  });
  EXPECT_EQ(error, "loaded");
}

TEST_F(TrellisModel, RefusalsNameWhatIsWrong) {
  const auto without_object = [](nlohmann::json& settings) { settings[down].erase("trellis"); };
  EXPECT_THAT(load_error(without_object), HasSubstr(std::string(down) + ".trellis"));
  const auto other_code = [](nlohmann::json& settings) {
    settings[down]["trellis"]["code"] = "3inst";
  };
  EXPECT_THAT(load_error(other_code), HasSubstr("code"));
  const auto short_mul1 = [](nlohmann::json& settings) {
    settings[down]["trellis"]["code"] = "mul1";
  };
  EXPECT_THAT(load_error(short_mul1), HasSubstr("L 16"));
  const auto other_length = [](nlohmann::json& settings) { settings[down]["trellis"]["L"] = 14; };
  EXPECT_THAT(load_error(other_length), HasSubstr("L"));
  const auto other_bits = [](nlohmann::json& settings) { settings[down]["bits"] = 5; };
  EXPECT_THAT(load_error(other_bits), HasSubstr("bits"));
  const auto wrong_bits = [](nlohmann::json& settings) { settings[down]["bits"] = 2; };
  EXPECT_THAT(load_error(wrong_bits), HasSubstr(std::string(down) + ".weight"));
  const auto other_group = [](nlohmann::json& settings) { settings[down]["group_size"] = 128; };
  EXPECT_THAT(load_error(other_group), HasSubstr("group_size"));
  const auto other_axis = [](nlohmann::json& settings) { settings[down]["trellis"]["axis"] = 1; };
  EXPECT_THAT(load_error(other_axis), HasSubstr(std::string(down)));
  const auto plain_weight = [](nlohmann::json& settings) { settings["lm_head"] = settings[down]; };
  EXPECT_THAT(load_error(plain_weight), HasSubstr("lm_head"));
}

TEST_F(TrellisModel, EmbeddingsCannotBeCoded) {
  TrellisCheckpoint checkpoint;
  checkpoint.modules["model.embed_tokens"] = {.bits = 3, .axis = 1};
  checkpoint.write(coded(), dense());
  try {
    load_model(coded(), {});
    FAIL();
  } catch (const base::LoadError& error) {
    EXPECT_THAT(error.what(), HasSubstr("model.embed_tokens.weight"));
  }
  checkpoint.modules.erase("model.embed_tokens");
  checkpoint.modules["lm_head"] = {.bits = 3, .axis = 1};
  checkpoint.write(coded(), dense());
  EXPECT_NO_THROW(load_model(coded(), {}));
}

}  // namespace
}  // namespace espalier::models
