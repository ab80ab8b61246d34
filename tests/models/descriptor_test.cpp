// Settings that mean the same in the spellings of transformers 4 and 5, and ones that mean nothing.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/inspect.h"
#include "models/registry.h"
#include "support/damaged_files.h"
#include "support/fixtures.h"
#include "support/temporary_folder.h"

namespace espalier::models {
namespace {

using nlohmann::json;

class DescriptorTest : public testing::Test {
 protected:
  void SetUp() override {
    fixtures_ = tests::fixture_folder("tiny-text");
    if (!fixtures_) {
      GTEST_SKIP() << "shared/fixtures/tiny-text.tar.xz is absent";
    }
  }

  json config(const std::string& name) const {
    json config;
    std::ifstream(*fixtures_ / "a" / name / "config.json") >> config;
    return config;
  }

  static Descriptor describe(const json& config) {
    ConfigReader reader("config.json", config);
    return describe_model(reader);
  }

  std::optional<std::filesystem::path> fixtures_;
};

/// The older spelling of `config`: `rope_theta` beside `rope_scaling`.
json with_rope_scaling(json config, const char* type_key) {
  json rope = config.at("rope_parameters");
  config.erase("rope_parameters");
  config["rope_theta"] = rope.at("rope_theta");
  rope.erase("rope_theta");
  const json type = rope.at("rope_type");
  rope.erase("rope_type");
  rope[type_key] = type;
  config["rope_scaling"] = type == "default" ? json() : rope;
  config["torch_dtype"] = config.at("dtype");
  config.erase("dtype");
  return config;
}

TEST_F(DescriptorTest, OlderRopeSpellingsMeanTheSame) {
  for (const char* name : {"llama", "llama3_rope", "llama_yarn", "llama_linear_rope"}) {
    const RopeDescriptor expected = *describe(config(name)).layers.at(0).attention().rope;
    for (const char* type_key : {"rope_type", "type"}) {
      const Descriptor older = describe(with_rope_scaling(config(name), type_key));
      EXPECT_EQ(older.layers.at(0).attention().rope->inv_freq, expected.inv_freq) << name;
      EXPECT_EQ(older.layers.at(0).attention().rope->magnitude, expected.magnitude) << name;
    }
  }
}

TEST_F(DescriptorTest, OlderGemma3SpellingsMeanTheSame) {
  const Descriptor expected = describe(config("gemma3_text"));
  json older = config("gemma3_text");
  older.erase("rope_parameters");
  older.erase("layer_types");
  older.erase("_sliding_window_pattern");
  older["sliding_window_pattern"] = 4;
  older["rope_theta"] = 1000000.0;
  older["rope_local_base_freq"] = 10000.0;
  const Descriptor descriptor = describe(older);
  for (std::size_t i = 0; i < expected.layers.size(); ++i) {
    const AttentionDescriptor& attention = descriptor.layers.at(i).attention();
    EXPECT_EQ(attention.window, i == 3 ? 0 : 8);
    EXPECT_EQ(attention.rope->inv_freq, expected.layers[i].attention().rope->inv_freq) << i;
  }
}

TEST_F(DescriptorTest, ReadsGemma3AsItsModelCardHasIt) {
  // The settings of google/gemma-3-270m.
  const Descriptor descriptor = describe({{"model_type", "gemma3_text"},
                                          {"hidden_size", 640},
                                          {"intermediate_size", 2048},
                                          {"num_hidden_layers", 18},
                                          {"num_attention_heads", 4},
                                          {"num_key_value_heads", 1},
                                          {"head_dim", 256},
                                          {"sliding_window", 512},
                                          {"max_position_embeddings", 32768},
                                          {"rope_theta", 1000000.0},
                                          {"rope_local_base_freq", 10000.0},
                                          {"vocab_size", 262144},
                                          {"eos_token_id", 1}});
  EXPECT_TRUE(descriptor.tied_head);
  EXPECT_EQ(descriptor.end_tokens, std::vector<std::int32_t>{1});
  EXPECT_FLOAT_EQ(descriptor.embedding_scale, 25.298221F);
  for (std::size_t i = 0; i < 18; ++i) {
    const bool full = i == 5 || i == 11 || i == 17;
    EXPECT_EQ(descriptor.layers.at(i).attention().window, full ? 0 : 512) << i;
    EXPECT_FLOAT_EQ(descriptor.layers[i].attention().scale, 1.0F / 16);
  }
}

TEST_F(DescriptorTest, LongRopeEndsWhereItsShortFactorsDo) {
  EXPECT_EQ(describe(config("phi3_longrope")).context, 64);
}

TEST_F(DescriptorTest, LongRopeTakesItsLongFactorsWhereMoreIsAskedFor) {
  const json settings = config("phi3_longrope");
  const json& rope = settings.at("rope_parameters");
  ConfigReader reader("config.json", settings);
  reader.set_wanted_context(65);
  const Descriptor longer = describe_model(reader);
  EXPECT_EQ(longer.context, settings.at("max_position_embeddings"));
  const double base = rope.at("rope_theta");
  const std::vector<float>& found = longer.layers.at(0).attention().rope->inv_freq;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double exponent = static_cast<double>(i) / static_cast<double>(found.size());
    EXPECT_NEAR(found[i], std::pow(base, -exponent) / rope.at("long_factor").at(i).get<double>(),
                1e-6);
  }
}

TEST_F(DescriptorTest, DynamicRopeGrowsWithTheContextAskedFor) {
  json settings = config("llama");
  settings["rope_parameters"] = {
      {"rope_type", "dynamic"}, {"rope_theta", 10000.0}, {"factor", 2.0}};
  settings["max_position_embeddings"] = 64;
  const auto second_frequency = [&](int context) {
    ConfigReader reader("config.json", settings);
    reader.set_wanted_context(context);
    return describe_model(reader).layers.at(0).attention().rope->inv_freq.at(1);
  };
  EXPECT_NEAR(second_frequency(32), std::pow(10000.0, -2.0 / 16), 1e-6);
  // NTK-aware scaling: base * (factor * length / trained - (factor - 1)) ^ (d / (d - 2)).
  const double base = 10000.0 * std::pow(2.0 * 128 / 64 - 1, 16.0 / 14);
  EXPECT_NEAR(second_frequency(128), std::pow(base, -2.0 / 16), 1e-6);
}

TEST_F(DescriptorTest, Ministral3GrowsItsQueriesBeyondTheTrainedContext) {
  json settings = config("ministral3");
  settings["max_position_embeddings"] = 262144;
  const Descriptor decoder = describe(settings);
  EXPECT_EQ(decoder.context, 262144);
  ASSERT_TRUE(decoder.layers.at(0).attention().query_growth);
  EXPECT_EQ(decoder.layers.at(0).attention().query_growth->interval, 16384);
}

TEST_F(DescriptorTest, MimoReadsTheOriginalsPatterns) {
  json settings = config("mimo_v2_flash");
  for (const char* key : {"layer_types", "mlp_layer_types", "rope_parameters"}) {
    settings.erase(key);
  }
  settings["hybrid_layer_pattern"] = {0, 1, 0};
  settings["moe_layer_freq"] = {0, 0, 1};
  settings["rope_theta"] = 5000000;
  settings["swa_rope_theta"] = 10000;
  const Descriptor decoder = describe(settings);
  EXPECT_EQ(decoder.layers.at(0).attention().window, 0);
  EXPECT_EQ(decoder.layers.at(1).attention().window, 8);
  EXPECT_EQ(decoder.layers.at(2).attention().window, 0);
  EXPECT_TRUE(std::holds_alternative<MlpDescriptor>(decoder.layers.at(1).feed_forward));
  EXPECT_TRUE(std::holds_alternative<ExpertsDescriptor>(decoder.layers.at(2).feed_forward));
  EXPECT_GT(decoder.layers.at(1).attention().rope->inv_freq.at(1),
            decoder.layers.at(0).attention().rope->inv_freq.at(1));
  settings["swa_head_dim"] = 32;
  EXPECT_THROW(describe(settings), base::LoadError);
}

TEST_F(DescriptorTest, GptOssTakesItsOwnActivationOnly) {
  json settings = config("gpt_oss");
  settings["swiglu_alpha"] = 1.702;  // as transformers writes them
  settings["swiglu_limit"] = 7.0;
  EXPECT_NO_THROW(describe(settings));
  for (const char* key : {"swiglu_alpha", "swiglu_limit"}) {
    json other = settings;
    other[key] = 2.5;
    EXPECT_THROW(describe(other), base::LoadError) << key;
  }
}

TEST_F(DescriptorTest, NormsOfHeadsMayHaveTheirOwnWeights) {
  json settings = config("cohere");
  settings["use_qk_norm"] = true;
  const auto norm = describe(settings).layers.at(0).attention().qk_norm;
  ASSERT_TRUE(norm);
  EXPECT_EQ(norm->norm.kind, NormDescriptor::Kind::layer);
  EXPECT_EQ(norm->weights, QkNormDescriptor::Weights::stacked);
}

TEST_F(DescriptorTest, WindowsOfQwen3MoeAreInAllLayers) {
  json settings = config("qwen3_moe");
  settings["use_sliding_window"] = true;
  settings["sliding_window"] = 8;
  for (const LayerDescriptor& layer : describe(settings).layers) {
    EXPECT_EQ(layer.attention().window, 8);
  }
}

TEST_F(DescriptorTest, MambaTakesTheInnerSizeThatItsFileStates) {
  json settings = config("mamba");
  settings["intermediate_size"] = 96;
  const Descriptor model = describe(settings);
  const auto& mixer = std::get<RecurrentDescriptor>(model.layers.at(0).mixer);
  EXPECT_EQ(std::get<MambaDescriptor>(mixer).channels, 96);
}

TEST_F(DescriptorTest, RefusesLayerTypesItCannotPlace) {
  json wrong = config("gemma3_text");
  wrong["layer_types"] = {"sliding_attention"};
  EXPECT_THROW(describe(wrong), base::LoadError);
  wrong["layer_types"] = {"full_attention", "full_attention", "full_attention", "mamba"};
  EXPECT_THROW(describe(wrong), base::LoadError);
}

const std::vector<json>& nonsense() {
  static const std::vector<json> values = {nullptr,
                                           -1,
                                           0,
                                           1,
                                           std::numeric_limits<std::int32_t>::max(),
                                           std::int64_t{1} << 31U,
                                           std::numeric_limits<std::int64_t>::max(),
                                           std::numeric_limits<std::int64_t>::min(),
                                           std::numeric_limits<std::uint64_t>::max(),
                                           1e308,
                                           -1e-300,
                                           0.5,
                                           "",
                                           "x",
                                           json::array(),
                                           json::object(),
                                           json::array({1, std::int64_t{1} << 40U}),
                                           json::array({json::array()}),
                                           true,
                                           {{"a", 1}}};
  return values;
}

/// The places of all settings, those inside objects and arrays too.
void add_places(const json& value, const json::json_pointer& here,
                std::vector<json::json_pointer>& places) {
  if (!here.empty()) places.push_back(here);
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) add_places(inner, here / key, places);
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) add_places(value[i], here / i, places);
  }
}

/// Some of the many combinations in every run; all that are wanted with `ESPALIER_DAMAGED_FILES`.
TEST_F(DescriptorTest, NonsenseIsDescribedOrRefused) {
  const tests::TemporaryFolder folder;
  std::mt19937_64 random(20240229);
  int refused = 0;
  std::vector<std::filesystem::path> checkpoints;
  for (const auto& entry : std::filesystem::directory_iterator(*fixtures_ / "a")) {
    if (entry.is_directory()) checkpoints.push_back(entry.path());
  }
  std::ranges::sort(checkpoints);
  for (int i = 0; i < tests::damaged_variants(); ++i) {
    const std::filesystem::path& checkpoint =
        checkpoints[static_cast<std::size_t>(i) % checkpoints.size()];
    json settings = json::parse(std::ifstream(checkpoint / "config.json"));
    std::vector<json::json_pointer> places;
    add_places(settings, json::json_pointer(), places);
    const json::json_pointer& place = places[random() % places.size()];
    settings[place] = nonsense()[random() % nonsense().size()];
    SCOPED_TRACE(checkpoint.filename().string() + " with " + place.to_string() + " = " +
                 settings[place].dump());
    std::filesystem::remove(folder.path() / "model.safetensors");
    std::filesystem::create_symlink(checkpoint / "model.safetensors",
                                    folder.path() / "model.safetensors");
    folder.write("config.json", settings.dump());
    tests::largest_request = 0;
    try {
      inspect_model(folder.path());
    } catch (const base::LoadError&) {
      ++refused;
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    EXPECT_LE(tests::largest_request, tests::memory_allowance);
  }
  EXPECT_GT(refused, tests::damaged_variants() / 4);
}

}  // namespace
}  // namespace espalier::models
