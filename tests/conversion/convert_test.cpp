// Whole conversions of the tiny-text fixtures.
#include "conversion/convert.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arrays/gguf.h"
#include "arrays/safetensors.h"
#include "arrays/safetensors_writer.h"
#include "base/error.h"
#include "conversion/plan.h"
#include "conversion/tensor_stream.h"
#include "mlx/mlx.h"
#include "models/model.h"
#include "support/fixtures.h"
#include "support/model_logits.h"
#include "support/temporary_folder.h"

namespace espalier::conversion {
namespace {

namespace fs = std::filesystem;
namespace mx = mlx::core;

using arrays::StorageType;
using quantization::MlxFormat;
using quantization::MlxMode;
using testing::HasSubstr;

/// The reference logits of a tiny checkpoint and ours for another file of the same model.
struct Comparison {
  double worst = 0;      // largest difference
  double deviation = 0;  // standard deviation of the reference
};

Comparison compare_logits(const fs::path& fixture, const fs::path& model_path) {
  const auto reference = arrays::open_safetensors(fixture / "ref.safetensors");
  const auto* ids = reference->find("input_ids");
  const auto* logits = reference->find("logits");
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < static_cast<std::size_t>(ids->shape[1]); ++i) {
    std::int64_t id = 0;
    std::memcpy(&id, ids->bytes.data() + i * sizeof id, sizeof id);
    tokens.push_back(static_cast<std::int32_t>(id));
  }
  const std::vector<float> ours = tests::model_logits(model_path, tokens, tests::in_floats());
  Comparison result;
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    float expected = 0;
    std::memcpy(&expected, logits->bytes.data() + i * sizeof expected, sizeof expected);
    result.worst = std::max(result.worst, std::abs(static_cast<double>(expected) - ours[i]));
    sum += expected;
    squares += static_cast<double>(expected) * expected;
  }
  const auto count = static_cast<double>(ours.size());
  result.deviation = std::sqrt(squares / count - sum * sum / count / count);
  return result;
}

nlohmann::json read_json(const fs::path& path) {
  return nlohmann::json::parse(std::ifstream(path));
}

std::vector<std::byte> bytes_of(const mx::array& values) {
  mx::array whole = mx::contiguous(values);
  whole.eval();
  const auto* begin = reinterpret_cast<const std::byte*>(whole.data<std::uint8_t>());
  return {begin, begin + whole.nbytes()};
}

std::vector<std::byte> copy(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

void expect_same_tensors(const arrays::TensorFile& expected, const arrays::TensorFile& actual) {
  EXPECT_EQ(expected.tensors().size(), actual.tensors().size());
  for (const auto& tensor : expected.tensors()) {
    const auto* found = actual.find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->shape, tensor.shape) << tensor.name;
    EXPECT_EQ(found->type, tensor.type) << tensor.name;
    EXPECT_TRUE(std::ranges::equal(found->bytes, tensor.bytes)) << tensor.name;
  }
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

class Convert : public testing::Test {
 protected:
  void SetUp() override {
    const auto folder = tests::fixture_folder("tiny-text");
    if (!folder) GTEST_SKIP() << "shared/fixtures/tiny-text.tar.xz is absent";
    fixtures_ = *folder / "a";
  }

  ConvertOptions options(const std::string& model, const std::string& destination) const {
    ConvertOptions result;
    result.source = fixtures_ / model;
    result.destination = folder_.path() / destination;
    return result;
  }

  fs::path fixtures_;
  tests::TemporaryFolder folder_;
};

class ConvertFamily : public Convert, public testing::WithParamInterface<const char*> {};

TEST_P(ConvertFamily, ThroughGgufAndBackLosesNothing) {
  ConvertOptions there = options(GetParam(), "model.gguf");
  there.gguf = StorageType::f32;
  convert(there);
  const Comparison gguf = compare_logits(there.source, there.destination);
  EXPECT_LT(gguf.worst, 1e-3 * gguf.deviation);

  ConvertOptions back = options(GetParam(), "back");
  back.source = there.destination;
  back.dtype = StorageType::bf16;
  convert(back);
  // Values that bf16 cannot tell apart after adding one come back as another.
  const bool shifted = std::string(GetParam()).starts_with("gemma");
  const auto original = arrays::open_safetensors(there.source / "model.safetensors");
  const auto returned = arrays::open_safetensors_folder(back.destination);
  if (!shifted) expect_same_tensors(*original, *returned);
  const Comparison folder = compare_logits(there.source, back.destination);
  EXPECT_LT(folder.worst, 1e-3 * folder.deviation);
}

TEST_P(ConvertFamily, QuantizesAsMlxDoes) {
  constexpr MlxFormat format{MlxMode::affine, 4, 32};
  ConvertOptions quantized = options(GetParam(), "quantized");
  quantized.quantize = format;
  const ConvertReport report = convert(quantized);
  EXPECT_GT(report.encodings.at("affine 4 bit by 32"), 0);
  const auto config = read_json(quantized.destination / "config.json");
  EXPECT_EQ(config.at("quantization"),
            nlohmann::json({{"group_size", 32}, {"bits", 4}, {"mode", "affine"}}));
  const auto original = arrays::open_safetensors(quantized.source / "model.safetensors");
  const auto file = arrays::open_safetensors_folder(quantized.destination);
  for (const auto& tensor : original->tensors()) {
    SCOPED_TRACE(tensor.name);
    const auto* weight = file->find(tensor.name);
    ASSERT_NE(weight, nullptr);
    if (tensor.shape.size() < 2) {
      EXPECT_TRUE(std::ranges::equal(weight->bytes, tensor.bytes));
      continue;
    }
    const mx::array values(reinterpret_cast<const mx::bfloat16_t*>(tensor.bytes.data()),
                           {static_cast<int>(tensor.shape[0]), static_cast<int>(tensor.shape[1])},
                           mx::bfloat16);
    const auto parts = mx::quantize(values, format.group, format.bits);
    const std::string layer = layer_name(tensor.name);
    EXPECT_EQ(copy(weight->bytes), bytes_of(parts[0]));
    EXPECT_EQ(copy(file->find(layer + ".scales")->bytes), bytes_of(parts[1]));
    EXPECT_EQ(copy(file->find(layer + ".biases")->bytes), bytes_of(parts[2]));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ConvertFamily,
                         testing::Values("llama", "llama3_rope", "llama_tied_bias", "llama_yarn",
                                         "llama_linear_rope", "qwen2", "qwen3", "gemma", "gemma2",
                                         "gemma3_text"),
                         [](const auto& info) { return std::string(info.param); });

/// mlx-lm reads `rope_theta` and `rope_scaling`; the fixtures say `rope_parameters`.
TEST_F(Convert, NamesRopeSoThatOlderReadersKnowIt) {
  ConvertOptions cast = options("llama3_rope", "cast");
  cast.dtype = StorageType::bf16;
  convert(cast);
  const auto original = read_json(cast.source / "config.json").at("rope_parameters");
  const auto config = read_json(cast.destination / "config.json");
  EXPECT_EQ(config.at("rope_theta"), original.at("rope_theta"));
  auto scaling = original;
  scaling.erase("rope_theta");
  EXPECT_EQ(config.at("rope_scaling"), scaling);
  EXPECT_EQ(config.at("rope_parameters"), original);
  const Comparison logits = compare_logits(cast.source, cast.destination);
  EXPECT_LT(logits.worst, 1e-3 * logits.deviation);
}

TEST_F(Convert, CastsAndKeepsEverythingElse) {
  ConvertOptions cast = options("llama", "cast");
  cast.dtype = StorageType::f32;
  convert(cast);
  EXPECT_EQ(read_json(cast.destination / "config.json").at("dtype"), "float32");
  EXPECT_EQ(read_json(cast.destination / "generation_config.json"),
            read_json(cast.source / "generation_config.json"));
  EXPECT_FALSE(fs::exists(cast.destination / "ref.safetensors"));
  ConvertOptions back = options("llama", "back");
  back.source = cast.destination;
  back.dtype = StorageType::bf16;
  convert(back);
  expect_same_tensors(*arrays::open_safetensors(cast.source / "model.safetensors"),
                      *arrays::open_safetensors(back.destination / "model.safetensors"));
}

TEST_F(Convert, DequantizesToTheValuesOfMlx) {
  for (const MlxFormat& format :
       {MlxFormat{MlxMode::affine, 3, 64}, quantization::mlx_float_format(MlxMode::mxfp4),
        quantization::mlx_float_format(MlxMode::mxfp8),
        quantization::mlx_float_format(MlxMode::nvfp4)}) {
    SCOPED_TRACE(to_string(format));
    ConvertOptions there = options("llama", "q-" + mode_name(format.mode));
    there.quantize = format;
    convert(there);
    ConvertOptions back = options("llama", "d-" + mode_name(format.mode));
    back.source = there.destination;
    back.dequantize = true;
    back.dtype = StorageType::f32;
    convert(back);
    EXPECT_FALSE(read_json(back.destination / "config.json").contains("quantization"));
    const auto quantized = arrays::open_safetensors_folder(there.destination);
    const auto dense = arrays::open_safetensors_folder(back.destination);
    const std::string layer = "model.layers.1.mlp.up_proj";
    const auto load = [&](const std::string& name, mx::Dtype dtype) {
      const auto* tensor = quantized->find(layer + name);
      const mx::Shape shape{static_cast<int>(tensor->shape[0]), static_cast<int>(tensor->shape[1])};
      if (dtype == mx::bfloat16) {
        return mx::array(reinterpret_cast<const mx::bfloat16_t*>(tensor->bytes.data()), shape,
                         dtype);
      }
      if (dtype == mx::uint8) {
        return mx::array(reinterpret_cast<const std::uint8_t*>(tensor->bytes.data()), shape, dtype);
      }
      return mx::array(reinterpret_cast<const std::uint32_t*>(tensor->bytes.data()), shape, dtype);
    };
    const bool affine = format.mode == MlxMode::affine;
    const mx::array codes = load(".weight", mx::uint32);
    const mx::array expected =
        affine ? mx::dequantize(codes, mx::astype(load(".scales", mx::bfloat16), mx::float32),
                                mx::astype(load(".biases", mx::bfloat16), mx::float32),
                                format.group, format.bits)
               : mx::dequantize(codes, load(".scales", mx::uint8), std::nullopt, format.group,
                                format.bits, mode_name(format.mode), std::nullopt, mx::float32);
    EXPECT_EQ(copy(dense->find(layer + ".weight")->bytes), bytes_of(expected));
  }
}

TEST_F(Convert, RulesChooseByName) {
  ConvertOptions mixed = options("llama", "mixed");
  mixed.quantize = MlxFormat{MlxMode::affine, 4, 32};
  mixed.rules = {{"*.down_proj", "8:64"},
                 {"model.layers.0.*", "mxfp4"},
                 {"*.layers.0.mlp.down_proj", "bfloat16"},
                 {"*norm*", "float32"}};
  convert(mixed);
  const auto settings = read_json(mixed.destination / "config.json").at("quantization");
  EXPECT_EQ(settings.at("model.layers.1.mlp.down_proj"),
            nlohmann::json({{"group_size", 64}, {"bits", 8}, {"mode", "affine"}}));
  EXPECT_EQ(settings.at("model.layers.0.self_attn.q_proj"),
            nlohmann::json({{"group_size", 32}, {"bits", 4}, {"mode", "mxfp4"}}));
  EXPECT_FALSE(settings.contains("model.layers.1.self_attn.q_proj"));
  const auto file = arrays::open_safetensors_folder(mixed.destination);
  EXPECT_EQ(file->find("model.layers.0.mlp.down_proj.weight")->type, StorageType::bf16);
  EXPECT_EQ(file->find("model.norm.weight")->type, StorageType::f32);
  EXPECT_EQ(file->find("model.layers.0.self_attn.q_proj.biases"), nullptr);
}

TEST_F(Convert, QuantizedWeightsThatStayAreCopied) {
  ConvertOptions first = options("llama", "first");
  first.quantize = MlxFormat{MlxMode::affine, 4, 64};
  convert(first);
  ConvertOptions second = options("llama", "second");
  second.source = first.destination;
  second.quantize = first.quantize;
  convert(second);
  expect_same_tensors(*arrays::open_safetensors_folder(first.destination),
                      *arrays::open_safetensors_folder(second.destination));
  ConvertOptions cast = options("llama", "cast");
  cast.source = first.destination;
  cast.dtype = StorageType::f32;
  convert(cast);
  const auto file = arrays::open_safetensors_folder(cast.destination);
  EXPECT_EQ(file->find("model.layers.0.mlp.up_proj.scales")->type, StorageType::f32);
  EXPECT_EQ(file->find("model.layers.0.mlp.up_proj.weight")->type, StorageType::u32);
}

TEST_F(Convert, GgufTypesFallBackWhereRowsAreNoWholeBlocks) {
  ConvertOptions blocks = options("llama", "model.gguf");
  blocks.gguf = StorageType::q4_k;
  blocks.rules = {{"blk.0.attn_v", "Q8_0"}};
  const ConvertReport report = convert(blocks);
  EXPECT_FALSE(report.notes.empty());
  const auto file = arrays::GgufFile::open(blocks.destination);
  EXPECT_EQ(file->find("blk.0.attn_v.weight")->type, StorageType::q8_0);
  EXPECT_EQ(file->find("blk.1.attn_v.weight")->type, StorageType::q5_0);  // 64 values a row
  EXPECT_EQ(file->find("output.weight")->type, StorageType::q8_0);
  EXPECT_EQ(file->find("blk.0.attn_norm.weight")->type, StorageType::f32);
  EXPECT_EQ(file->metadata().integer("llama.block_count"), 3);
}

/// GGUF's Llama knows no windows: positions end where they would matter.
TEST_F(Convert, MistralsContextEndsWithItsWindow) {
  ConvertOptions gguf = options("mistral", "model.gguf");
  gguf.gguf = StorageType::bf16;
  convert(gguf);
  EXPECT_EQ(arrays::GgufFile::open(gguf.destination)->metadata().integer("llama.context_length"),
            8);
}

template <typename Error>
void expect_refused(const ConvertOptions& options, const std::string& part) {
  try {
    convert(options);
    FAIL() << "not refused: " << part;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST_F(Convert, RefusesWhatMakesNoSense) {
  ConvertOptions good = options("llama", "out");
  good.dtype = StorageType::f16;
  ConvertOptions wrong = good;
  wrong.rules = {{"no.such.layer", "float32"}};
  expect_refused<base::UsageError>(wrong, "matches no tensor");
  wrong.rules = {{"*norm*", "4"}};
  expect_refused<base::UsageError>(wrong, "matches no tensor");
  wrong.rules = {{"*", "five"}};
  expect_refused<base::UsageError>(wrong, "five");
  wrong.rules = {{"*q_proj", "4:128"}};
  expect_refused<base::LoadError>(wrong, "q_proj");
  wrong = good;
  wrong.quantize = MlxFormat{MlxMode::affine, 7, 64};
  expect_refused<base::UsageError>(wrong, "2, 3, 4, 5, 6 or 8");
  wrong = good;
  wrong.dtype.reset();
  expect_refused<base::UsageError>(wrong, "say what to convert to");
  wrong.gguf = StorageType::f16;
  expect_refused<base::UsageError>(wrong, ".gguf");
  wrong = options("cohere", "model.gguf");
  wrong.gguf = StorageType::f16;
  expect_refused<base::LoadError>(wrong, "cohere");
  wrong = good;
  wrong.destination = "";
  expect_refused<base::UsageError>(wrong, "name");
  wrong.destination = folder_.path() / "missing" / "out";
  expect_refused<std::runtime_error>(wrong, "out");
  wrong.destination = folder_.path() / std::string(300, 'n');
  expect_refused<std::runtime_error>(wrong, "cannot write ");
  wrong.destination = folder_.write("taken", "");
  expect_refused<std::runtime_error>(wrong, "exists already");
  EXPECT_THAT(names_in(folder_.path()), testing::ElementsAre("taken"));
}

/// The tiny Llama with infinity as the embedding's first value.
TEST_F(Convert, RefusesValuesThatCannotBeQuantized) {
  const fs::path source = folder_.path() / "source";
  fs::create_directory(source);
  fs::copy_file(fixtures_ / "llama" / "config.json", source / "config.json");
  const auto original = arrays::open_safetensors(fixtures_ / "llama" / "model.safetensors");
  std::vector<arrays::SafetensorsWriter::Entry> entries;
  for (const auto& tensor : original->tensors()) {
    entries.push_back({tensor.name, tensor.type, tensor.shape});
  }
  {
    arrays::SafetensorsWriter writer(source / "model.safetensors", entries);
    for (const auto& tensor : original->tensors()) {
      std::vector<std::byte> bytes(tensor.bytes.begin(), tensor.bytes.end());
      if (tensor.name == "model.embed_tokens.weight") {
        bytes[0] = std::byte{0};
        bytes[1] =
            std::byte{tensor.type == StorageType::f16 ? std::uint8_t{0x7C} : std::uint8_t{0x7F}};
        if (tensor.type == StorageType::bf16) bytes[0] = std::byte{0x80};
      }
      writer.append(bytes);
    }
    writer.finish();
  }
  ConvertOptions quantized = options("llama", "out");
  quantized.source = source;
  quantized.quantize = MlxFormat{};
  expect_refused<base::LoadError>(quantized, "model.embed_tokens.weight");
  EXPECT_THAT(names_in(folder_.path()), testing::ElementsAre("source"));
}

TEST_F(Convert, RefusesWhatTheConfigurationDoesNotDescribe) {
  const fs::path source = folder_.path() / "source";
  fs::create_directory(source);
  fs::copy_file(fixtures_ / "llama" / "model.safetensors", source / "model.safetensors");
  auto config = read_json(fixtures_ / "llama" / "config.json");
  const auto refused = [&](const std::string& expected) {
    std::ofstream(source / "config.json") << config;
    ConvertOptions cast = options("llama", "out");
    cast.source = source;
    cast.dtype = StorageType::f16;
    expect_refused<base::LoadError>(cast, expected);
    EXPECT_THAT(names_in(folder_.path()), testing::ElementsAre("source"));
  };
  config["num_hidden_layers"] = config.at("num_hidden_layers").get<int>() - 1;
  refused("the model has no use for the tensors");
  config["num_hidden_layers"] = config.at("num_hidden_layers").get<int>() + 2;
  refused("self_attn.q_proj.weight' is missing; ");
  config["model_type"] = "lama";
  refused("llama");
}

/// An unread tensor has no name in the other container.
TEST_F(Convert, LeavesOutWhatTheModelDoesNotRead) {
  const fs::path source = folder_.path() / "source";
  fs::create_directory(source);
  fs::copy_file(fixtures_ / "llama" / "config.json", source / "config.json");
  const auto original = arrays::open_safetensors(fixtures_ / "llama" / "model.safetensors");
  std::vector<arrays::SafetensorsWriter::Entry> entries;
  for (const auto& tensor : original->tensors()) {
    entries.push_back({tensor.name, tensor.type, tensor.shape});
  }
  const std::string extra = "model.layers.0.self_attn.k_scale";
  entries.push_back({extra, StorageType::f32, {1}});
  arrays::SafetensorsWriter writer(source / "model.safetensors", entries);
  for (const auto& tensor : original->tensors()) writer.append(tensor.bytes);
  writer.append(std::vector<std::byte>(sizeof(float)));
  writer.finish();
  ConvertOptions there = options("llama", "model.gguf");
  there.source = source;
  there.gguf = StorageType::f16;
  EXPECT_THAT(convert(there).notes, testing::Contains(HasSubstr(extra + " is left out: ")));
  EXPECT_EQ(arrays::GgufFile::open(there.destination)->tensors().size(), entries.size() - 1);
}

TEST_F(Convert, LeavesNothingWhenCancelled) {
  for (const char* destination : {"out", "out.gguf"}) {
    ConvertOptions cancelled = options("llama", destination);
    if (cancelled.destination.extension() == ".gguf") {
      cancelled.gguf = StorageType::f16;
    } else {
      cancelled.dtype = StorageType::f32;
    }
    cancelled.cancelled.cancel();
    EXPECT_THROW(convert(cancelled), Interrupted);
    EXPECT_THAT(names_in(folder_.path()), testing::IsEmpty());
  }
}

/// A limit on the size of files fails a write as a full disk does.
TEST_F(Convert, LeavesNothingWhenTheDiskIsFull) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  for (const char* destination : {"out", "out.gguf"}) {
    ConvertOptions full = options("llama", destination);
    if (full.destination.extension() == ".gguf") {
      full.gguf = StorageType::f16;
    } else {
      full.dtype = StorageType::f32;
    }
    std::string message = "written";
    const rlimit small{100'000, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    try {
      convert(full);
    } catch (const std::runtime_error& error) {
      message = error.what();
    }
    ::setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_THAT(message, testing::AllOf(HasSubstr("cannot write"), HasSubstr("out"),
                                        HasSubstr(std::strerror(EFBIG))));
    EXPECT_THAT(names_in(folder_.path()), testing::IsEmpty());
  }
  ::signal(SIGXFSZ, old_handler);
}

TEST_F(Convert, RemovesWhatAKilledConversionLeft) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  const std::string dead = "out.partial-" + std::to_string(child);
  const std::string alive = "out.partial-" + std::to_string(::getppid());
  folder_.write(fs::path(dead) / "model.safetensors", "half");
  folder_.write(fs::path(alive) / "model.safetensors", "half");
  ConvertOptions again = options("llama", "out");
  again.dtype = StorageType::f16;
  convert(again);
  EXPECT_THAT(names_in(folder_.path()), testing::UnorderedElementsAre("out", alive));
}

}  // namespace
}  // namespace espalier::conversion
