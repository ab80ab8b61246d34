// Checkpoints that become trellis-coded, and rotations folded into them.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "arrays/safetensors.h"
#include "arrays/safetensors_writer.h"
#include "base/error.h"
#include "conversion/convert.h"
#include "conversion/rotation.h"
#include "conversion/sensitivity.h"
#include "conversion/tensor_stream.h"
#include "conversion/trellis_plan.h"
#include "mlx/mlx.h"
#include "models/model.h"
#include "support/model_logits.h"
#include "support/temporary_folder.h"
#include "support/trellis_checkpoint.h"

namespace espalier::conversion {
namespace {

namespace fs = std::filesystem;
namespace mx = mlx::core;

using nlohmann::json;
using testing::Contains;
using testing::HasSubstr;

constexpr const char* gate = "model.layers.0.mlp.gate_proj";
constexpr const char* down = "model.layers.0.mlp.down_proj";

json read_json(const fs::path& path) { return json::parse(std::ifstream(path)); }

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Logits of 16 tokens, computed in floats.
std::vector<float> logits(const fs::path& path) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 16; ++i) tokens.push_back(i * 7 % tests::TrellisCheckpoint::vocabulary);
  return tests::model_logits(path, tokens, tests::in_floats());
}

double distance(const std::vector<float>& got, const std::vector<float>& expected) {
  double error = 0;
  double size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(got.at(i) - expected[i], 2);
    size += std::pow(expected[i], 2);
  }
  return std::sqrt(error / size);
}

class TrellisConvert : public testing::Test {
 protected:
  void SetUp() override { checkpoint_.write(folder_.path() / "unused", source()); }

  fs::path source() const { return folder_.path() / "source"; }
  fs::path target() const { return folder_.path() / "target"; }

  ConvertOptions options(const std::string& trellis) const {
    ConvertOptions options;
    options.source = source();
    options.destination = target();
    options.trellis = parse_trellis(trellis, {});
    return options;
  }

  tests::TemporaryFolder folder_;
  /// As in SmolLM2: only the feed-forward part's width is a multiple of 256.
  tests::TrellisCheckpoint checkpoint_{.width = 64,
                                       .hidden = 512,
                                       .layers = 1,
                                       .heads = 2,
                                       .kv_heads = 1,
                                       .head_dim = 32,
                                       .modules = {}};
};

TEST_F(TrellisConvert, CodesAlongTheDimensionThatFitsAndListsTheRest) {
  const ConvertReport report = convert(options("3"));
  const json settings = read_json(target() / "config.json").at("quantization");
  EXPECT_EQ(settings.at("mode"), "affine");
  const json expected_gate = {{"bits", 3},
                              {"group_size", 256},
                              {"mode", "trellis"},
                              {"trellis", {{"L", 12}, {"code", "1mad"}, {"axis", 0}}}};
  EXPECT_EQ(settings.at(gate), expected_gate);
  EXPECT_EQ(settings.at(down).at("trellis").at("axis"), 1);
  EXPECT_FALSE(settings.contains("model.layers.0.self_attn.q_proj"));
  EXPECT_THAT(report.notes, Contains(HasSubstr("model.layers.0.self_attn.q_proj")));
  const auto file = arrays::open_safetensors(target() / "model.safetensors");
  EXPECT_EQ(file->find(std::string(gate) + ".weight")->shape, (std::vector<std::int64_t>{64, 48}));
  EXPECT_EQ(file->find(std::string(gate) + ".scales")->shape, std::vector<std::int64_t>{64});
  EXPECT_LT(distance(logits(target()), logits(source())), 0.5);
  EXPECT_FALSE(fs::exists(folder_.path() / "target.coded"));
}

TEST_F(TrellisConvert, MoreBitsAreCloser) {
  double before = 1;
  for (const char* bits : {"2", "3", "3.5", "4"}) {
    ConvertOptions wanted = options(bits);
    wanted.rules = {{"*self_attn*", "keep"}, {"*embed*", "keep"}, {"lm_head", "keep"}};
    convert(wanted);
    const double error = distance(logits(target()), logits(source()));
    EXPECT_LT(error, before) << bits;
    before = error;
    fs::remove_all(target());
  }
  EXPECT_LT(before, 0.15);
}

TEST_F(TrellisConvert, AMapGivesEachLayerItsBits) {
  const auto path = folder_.write("map.json", json{{gate, 2}, {down, 3.5}}.dump());
  convert(options(path.string()));
  const json settings = read_json(target() / "config.json").at("quantization");
  EXPECT_EQ(settings.at(gate).at("bits"), 2);
  EXPECT_EQ(settings.at(down).at("bits"), 3.5);
  EXPECT_FALSE(settings.contains("model.layers.0.mlp.up_proj"));
  EXPECT_NO_THROW(logits(target()));
}

TEST_F(TrellisConvert, RefusesWhatCannotBeCoded) {
  EXPECT_THROW(parse_trellis("5", {}), base::UsageError);
  const auto unknown = folder_.write("unknown.json", json{{"model.layers.9.mlp", 3}}.dump());
  EXPECT_THROW(convert(options(unknown.string())), base::UsageError);
  const auto short_rows =
      folder_.write("short.json", json{{"model.layers.0.self_attn.q_proj", 3}}.dump());
  EXPECT_THROW(convert(options(short_rows.string())), base::LoadError);
  const auto bits = folder_.write("bits.json", json{{gate, 7}}.dump());
  EXPECT_THROW(parse_trellis(bits.string(), {}), base::LoadError);
  EXPECT_FALSE(fs::exists(target()));
}

/// Rewrites a checkpoint's file with one tensor before all others.
void put_first(const fs::path& folder, const std::string& name) {
  const fs::path path = folder / "model.safetensors";
  const fs::path rewritten = folder / "rewritten";
  {
    const auto file = arrays::open_safetensors(path);
    std::vector<arrays::TensorView> tensors = file->tensors();
    std::ranges::stable_partition(tensors, [&](const auto& tensor) { return tensor.name == name; });
    std::vector<arrays::SafetensorsWriter::Entry> entries;
    for (const auto& tensor : tensors) {
      entries.push_back({.name = tensor.name, .type = tensor.type, .shape = tensor.shape});
    }
    arrays::SafetensorsWriter writer(rewritten, entries);
    for (const auto& tensor : tensors) writer.append(tensor.bytes);
    writer.finish();
  }
  fs::rename(rewritten, path);
}

TEST_F(TrellisConvert, GoesOnWhereItWasInterrupted) {
  put_first(source(), std::string(gate) + ".weight");
  convert(options("3"));
  const std::string expected = read_bytes(target() / "model.safetensors");
  fs::remove_all(target());
  ConvertOptions interrupted = options("3");
  // While the first tensor is at work, which is still completed.
  interrupted.progress = [&](int, int) { interrupted.cancelled.cancel(); };
  EXPECT_THROW(convert(interrupted), Interrupted);
  EXPECT_FALSE(fs::exists(target()));
  EXPECT_FALSE(fs::is_empty(folder_.path() / "target.coded"));
  convert(options("3"));
  EXPECT_EQ(read_bytes(target() / "model.safetensors"), expected);
  EXPECT_FALSE(fs::exists(folder_.path() / "target.coded"));
}

/// A text whose tokens are those of `logits`, in random order.
std::string familiar_text() {
  std::mt19937 random(3);
  std::string text;
  for (int i = 0; i < 600; ++i) {
    text += static_cast<char>('0' + random() % 16 * 7 % tests::TrellisCheckpoint::vocabulary);
  }
  return text;
}

/// A tokenizer whose tokens are the characters from '0' on.
void write_tokenizer(const fs::path& folder) {
  json vocabulary = json::object();
  for (int i = 0; i < tests::TrellisCheckpoint::vocabulary; ++i) {
    vocabulary[std::string(1, static_cast<char>('0' + i))] = i;
  }
  const json tokenizer = {
      {"version", "1.0"},
      {"added_tokens", json::array()},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", json::array()}}}};
  std::ofstream(folder / "tokenizer.json") << tokenizer;
}

TEST_F(TrellisConvert, ACalibrationTextBringsAnswersCloser) {
  write_tokenizer(source());
  ConvertOptions wanted = options("2");
  wanted.rules = {{"*self_attn*", "keep"}, {"*embed*", "keep"}, {"lm_head", "keep"}};
  convert(wanted);
  const double plain = distance(logits(target()), logits(source()));
  fs::remove_all(target());
  wanted.calibration = familiar_text();
  const ConvertReport report = convert(wanted);
  EXPECT_THAT(report.notes, testing::Each(testing::Not(HasSubstr("without feedback"))));
  EXPECT_LT(distance(logits(target()), logits(source())), 0.8 * plain);
  wanted.destination = folder_.path() / "other";
  wanted.calibration = "012";
  EXPECT_THROW(convert(wanted), base::UsageError);
}

TEST_F(TrellisConvert, ABudgetChoosesTheBitsOfEachMatrix) {
  write_tokenizer(source());
  ConvertOptions wanted = options("3");
  wanted.quantize = quantization::MlxFormat{};
  BudgetOptions budget;
  budget.source = source();
  budget.bits_per_weight = 3.4;
  budget.text = familiar_text();
  wanted.trellis->layers = choose_trellis(budget, wanted);
  EXPECT_EQ(wanted.trellis->layers.size(), 3U);
  const ConvertReport report = convert(wanted);
  EXPECT_LE(report.bits_per_weight, 3.4);
  EXPECT_GT(report.bits_per_weight, 3.2);
  EXPECT_NO_THROW(logits(target()));
  budget.bits_per_weight = 2;
  EXPECT_THROW(choose_trellis(budget, wanted), base::UsageError);
}

TEST(TrellisAxis, IsTheResidualStreamsWhereThatFits) {
  EXPECT_EQ(trellis_axis("model.layers.0.mlp.gate_proj", 17408, 5120), 1);
  EXPECT_EQ(trellis_axis("model.layers.0.mlp.down_proj", 5120, 17408), 0);
  EXPECT_EQ(trellis_axis("model.layers.0.mlp.gate_proj", 1536, 576), 0);
  EXPECT_EQ(trellis_axis("model.layers.0.mlp.down_proj", 576, 1536), 1);
  EXPECT_EQ(trellis_axis("model.layers.0.mlp.down_proj", 640, 2048), 1);
  EXPECT_EQ(trellis_axis("model.layers.0.self_attn.q_proj", 576, 576), std::nullopt);
}

// The format's own generator, seed 42.
TEST(Rotation, SignsAreTheFormats) {
  const std::vector<float> signs = random_signs(5120, 42, 0);
  std::string first;
  for (int i = 0; i < 24; ++i) first += signs[i] > 0 ? '+' : '-';
  EXPECT_EQ(first, "+++----++--++---+--++--+");
  EXPECT_EQ(std::accumulate(signs.begin(), signs.end(), 0.0F), 70.0F);
}

TEST(Rotation, KeepsLengthsAndAngles) {
  const std::vector<std::pair<int, int>> blocks = {{64, 64}, {576, 64}, {640, 640}, {96, 96}};
  for (const auto& [width, block] : blocks) {
    const Rotation rotation(width, 7);
    EXPECT_EQ(rotation.block(), block);
    std::vector<float> rows(static_cast<std::size_t>(2) * width, 0.0F);
    rows[1] = 3.0F;
    rows[width] = 1.0F;
    rows[width + 1] = 2.0F;
    rotation.apply(rows);
    const auto product = [&](int a, int b) {
      return std::inner_product(rows.begin() + a * width, rows.begin() + (a + 1) * width,
                                rows.begin() + b * width, 0.0);
    };
    EXPECT_NEAR(product(0, 0), 9.0, 1e-4);
    EXPECT_NEAR(product(1, 1), 5.0, 1e-4);
    EXPECT_NEAR(product(0, 1), 6.0, 1e-4);
  }
}

class RotatedModel : public testing::TestWithParam<bool> {};

TEST_P(RotatedModel, AnswersAsBefore) {
  const tests::TemporaryFolder folder;
  const fs::path source = folder.path() / "source";
  const tests::TrellisCheckpoint checkpoint{.width = 72,  // 9 blocks of 8
                                            .hidden = 128,
                                            .layers = 2,
                                            .heads = 2,
                                            .kv_heads = 1,
                                            .head_dim = 32,
                                            .modules = {}};
  checkpoint.write(folder.path() / "unused", source);
  if (GetParam()) {
    json config = read_json(source / "config.json");
    config["tie_word_embeddings"] = true;
    std::ofstream(source / "config.json") << config;
  }
  const fs::path target = folder.path() / "target";
  ConvertOptions options;
  options.source = source;
  options.destination = target;
  options.dtype = arrays::StorageType::f32;
  options.rotation_seed = 42;
  convert(options);
  EXPECT_LT(distance(logits(target), logits(source)), 1e-4);
  const auto before = arrays::open_safetensors(source / "model.safetensors");
  const auto after = arrays::open_safetensors(target / "model.safetensors");
  const std::string name = std::string(down) + ".weight";
  EXPECT_FALSE(std::ranges::equal(before->find(name)->bytes, after->find(name)->bytes));

  std::ofstream(source / "modules.json") << "[]";  // as sentence-transformers marks its models
  options.destination = folder.path() / "vectors";
  EXPECT_THROW(convert(options), base::LoadError);
}

INSTANTIATE_TEST_SUITE_P(WithOwnAndTiedHead, RotatedModel, testing::Bool());

}  // namespace
}  // namespace espalier::conversion
