// What loading refuses, and that it names what is wrong.
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "arrays/safetensors.h"
#include "arrays/safetensors_writer.h"
#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/audit.h"
#include "models/model.h"
#include "support/fixtures.h"

namespace espalier::models {
namespace {

namespace fs = std::filesystem;
using arrays::SafetensorsWriter;
using testing::AllOf;
using testing::HasSubstr;

/// A copy of the tiny Llama checkpoint that a test may change before loading it.
class LoadModel : public testing::Test {
 protected:
  void SetUp() override {
    const auto fixtures = tests::fixture_folder("tiny-text");
    if (!fixtures) {
      GTEST_SKIP() << "shared/fixtures/tiny-text.tar.xz is absent";
    }
    source_ = *fixtures / "a" / "llama";
    folder_ = fs::temp_directory_path() / ("espalier-load-model-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    std::ifstream(source_ / "config.json") >> config_;
    const auto original = file();
    for (const arrays::TensorView& tensor : original->tensors()) {
      entries_.push_back({.name = tensor.name, .type = tensor.type, .shape = tensor.shape});
    }
  }

  void TearDown() override {
    if (!folder_.empty()) {
      fs::remove_all(folder_);
    }
  }

  std::shared_ptr<const arrays::TensorFile> file() const {
    return arrays::open_safetensors(source_ / "model.safetensors");
  }

  SafetensorsWriter::Entry& entry(const std::string& name) {
    return *std::ranges::find(entries_, name, &SafetensorsWriter::Entry::name);
  }

  /// Writes the checkpoint; tensors of a changed shape hold zeros.
  void write() {
    std::ofstream(folder_ / "config.json") << config_;
    SafetensorsWriter writer(folder_ / "model.safetensors", entries_);
    const auto original = file();
    for (const SafetensorsWriter::Entry& entry : entries_) {
      const arrays::TensorView* tensor = original->find(entry.name);
      if (tensor != nullptr && tensor->shape == entry.shape) {
        writer.append(tensor->bytes);
        continue;
      }
      std::size_t bytes = static_cast<std::size_t>(arrays::storage_traits(entry.type).bytes);
      for (const std::int64_t size : entry.shape) {
        bytes *= static_cast<std::size_t>(size);
      }
      writer.append(std::vector<std::byte>(bytes));
    }
    writer.finish();
  }

  /// What an audit of the headers says too.
  std::string load_error() {
    write();
    std::string audited = "loaded";
    try {
      audit_checkpoint(folder_);
    } catch (const base::LoadError& error) {
      audited = error.what();
    }
    try {
      load_model(folder_, {});
    } catch (const base::LoadError& error) {
      EXPECT_EQ(audited, error.what());
      return error.what();
    }
    EXPECT_EQ(audited, "loaded");
    return "loaded";
  }

  fs::path source_;
  fs::path folder_;
  nlohmann::json config_;
  std::vector<SafetensorsWriter::Entry> entries_;
};

constexpr const char* up_proj = "model.layers.1.mlp.up_proj.weight";

TEST_F(LoadModel, TakesTheUnchangedCheckpoint) { EXPECT_EQ(load_error(), "loaded"); }

TEST_F(LoadModel, TakesNamesWithoutTheirPrefix) {
  const std::string prefix = "model.";
  for (SafetensorsWriter::Entry& entry : entries_) {
    if (entry.name.starts_with(prefix)) {
      entry.name.erase(0, prefix.size());
    }
  }
  EXPECT_EQ(load_error(), "loaded");
}

TEST_F(LoadModel, NamesAMissingTensor) {
  std::erase_if(entries_, [](const auto& entry) { return entry.name == up_proj; });
  EXPECT_THAT(load_error(), AllOf(HasSubstr(up_proj), HasSubstr("missing")));
}

TEST_F(LoadModel, NamesAMisshapenTensor) {
  entry(up_proj).shape = {64, 64};
  EXPECT_THAT(load_error(),
              AllOf(HasSubstr(up_proj), HasSubstr("[64, 64]"), HasSubstr("[128, 64]")));
}

TEST_F(LoadModel, NamesAnExtraTensor) {
  entries_.push_back(
      {.name = "model.layers.1.mystery.weight", .type = arrays::StorageType::f32, .shape = {4}});
  EXPECT_THAT(load_error(), HasSubstr("model.layers.1.mystery.weight"));
}

TEST_F(LoadModel, NamesEveryFault) {
  std::erase_if(entries_, [](const auto& entry) { return entry.name == up_proj; });
  entry("model.layers.0.self_attn.o_proj.weight").shape = {64, 32};
  entry("model.norm.weight").shape = {32};
  entries_.push_back({.name = "mystery", .type = arrays::StorageType::f32, .shape = {4}});
  EXPECT_THAT(load_error(), AllOf(HasSubstr("'model.layers.1.mlp.up_proj.weight' is missing"),
                                  HasSubstr("o_proj.weight' has shape [64, 32], expected [64, 64]"),
                                  HasSubstr("'model.norm.weight' has shape [32], expected [64]"),
                                  HasSubstr("no use for the tensors 'mystery'.")));
}

TEST_F(LoadModel, NamesALayerTooMany) {
  config_["num_hidden_layers"] = 2;
  EXPECT_THAT(load_error(), HasSubstr("model.layers.2."));
}

TEST_F(LoadModel, IgnoresTablesThatFollowFromTheConfiguration) {
  entries_.push_back({.name = "model.layers.0.self_attn.rotary_emb.inv_freq",
                      .type = arrays::StorageType::f32,
                      .shape = {8}});
  EXPECT_EQ(load_error(), "loaded");
}

TEST_F(LoadModel, IgnoresASecondCopyOfATiedHead) {
  config_["tie_word_embeddings"] = true;
  EXPECT_EQ(load_error(), "loaded");
}

TEST_F(LoadModel, NamesAnUnknownSetting) {
  config_["attention_temperature"] = 2.0;
  EXPECT_THAT(load_error(), AllOf(HasSubstr("config.json"), HasSubstr("'attention_temperature'")));
}

TEST_F(LoadModel, NamesAnUnknownSettingInsideAnObject) {
  config_["rope_parameters"]["twist"] = 2.0;
  EXPECT_THAT(load_error(), HasSubstr("'rope_parameters.twist'"));
}

TEST_F(LoadModel, NamesASettingOfAnotherType) {
  config_["hidden_size"] = "64";
  EXPECT_THAT(load_error(), AllOf(HasSubstr("'hidden_size'"), HasSubstr("whole number")));
}

TEST_F(LoadModel, NamesAMissingSetting) {
  config_.erase("rms_norm_eps");
  EXPECT_THAT(load_error(), AllOf(HasSubstr("'rms_norm_eps'"), HasSubstr("missing")));
}

TEST_F(LoadModel, NamesAMatrixOfNothing) {
  config_["intermediate_size"] = 0;
  EXPECT_THAT(load_error(), AllOf(HasSubstr("mlp.gate_proj.weight"), HasSubstr("a size is 0")));
}

TEST_F(LoadModel, NamesAnUnknownRopeType) {
  config_["rope_parameters"]["rope_type"] = "spiral";
  EXPECT_THAT(load_error(), AllOf(HasSubstr("'rope_parameters.rope_type'"), HasSubstr("spiral")));
}

TEST_F(LoadModel, NamesAnUnknownRopeTypeOfTheOlderKey) {
  config_["rope_scaling"] = {{"rope_type", "spiral"}, {"factor", 2.0}};
  EXPECT_THAT(load_error(), AllOf(HasSubstr("'rope_scaling.rope_type'"), HasSubstr("spiral")));
  config_["rope_scaling"] = {{"rope_type", "default"}};
  EXPECT_EQ(load_error(), "loaded");
}

TEST_F(LoadModel, NamesHeadsThatDoNotDivide) {
  config_["num_key_value_heads"] = 3;
  EXPECT_THAT(load_error(), HasSubstr("4 attention heads"));
}

TEST_F(LoadModel, ListsTheNearestTypesForAnUnknownOne) {
  config_["model_type"] = "mistrall";
  EXPECT_THAT(load_error(),
              AllOf(HasSubstr("'mistrall'"), HasSubstr("mistral"), HasSubstr("ministral")));
}

TEST_F(LoadModel, SaysWhereConfigJsonIsNotJson) {
  write();
  std::ofstream(folder_ / "config.json") << "{\"hidden_size\": }";
  try {
    load_model(folder_, {});
    FAIL() << "loaded";
  } catch (const base::LoadError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("config.json"), HasSubstr("byte 17")));
  }
}

}  // namespace
}  // namespace espalier::models
