// Sequence models against what transformers makes of the same tiny checkpoints (encoders/, written
// by make_encoders.py) and sentence-transformers of MiniLM.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "arrays/safetensors.h"
#include "base/error.h"
#include "gtest/gtest.h"
#include "models/model.h"
#include "models/sequence_model.h"
#include "support/temporary_folder.h"

namespace espalier::models {
namespace {

namespace fs = std::filesystem;

fs::path encoders() { return fs::path(ESPALIER_SOURCE_DIR) / "tests/models/encoders"; }

struct Reference {
  std::vector<std::int32_t> tokens;
  std::vector<float> output;  // [rows, width], or a classifier's scores
};

template <typename T>
std::vector<T> values(const arrays::TensorFile& file, const std::string& name) {
  const arrays::TensorView* tensor = file.find(name);
  if (tensor == nullptr) {
    throw std::runtime_error("no tensor " + name);
  }
  std::vector<T> result(tensor->bytes.size() / sizeof(T));
  std::memcpy(result.data(), tensor->bytes.data(), tensor->bytes.size());
  return result;
}

std::vector<Reference> read_references(const fs::path& folder) {
  const auto file = arrays::open_safetensors(folder / "ref.safetensors");
  std::vector<Reference> references;
  for (const char* index : {"0", "1"}) {
    references.push_back({.tokens = values<std::int32_t>(*file, std::string("input_ids.") + index),
                          .output = values<float>(*file, std::string("output.") + index)});
  }
  return references;
}

/// The mean of the rows, which a bare body pools with.
std::vector<float> mean_row(const Reference& reference) {
  const std::size_t rows = reference.tokens.size();
  const std::size_t width = reference.output.size() / rows;
  std::vector<float> mean(width, 0.0F);
  for (std::size_t i = 0; i < reference.output.size(); ++i) {
    mean[i % width] += reference.output[i] / static_cast<float>(rows);
  }
  return mean;
}

std::vector<float> run(SequenceModel& model, const std::vector<SequenceInput>& inputs) {
  const mlx::core::array vectors = model.run(inputs);
  return {vectors.data<float>(), vectors.data<float>() + vectors.size()};
}

class Encoder : public testing::TestWithParam<const char*> {
 protected:
  Encoder()
      : references_(read_references(encoders() / GetParam())),
        model_(load_sequence_model(encoders() / GetParam(), {.dtype = mlx::core::float32})) {}

  std::vector<Reference> references_;
  std::unique_ptr<SequenceModel> model_;
};

TEST_P(Encoder, AgreesWithTheReference) {
  for (const Reference& reference : references_) {
    const bool classifies = !model_->embedding().has_value();
    const std::vector<float> expected = classifies ? reference.output : mean_row(reference);
    const std::vector<float> actual = run(*model_, {{.tokens = reference.tokens}});
    ASSERT_EQ(actual.size(), expected.size());
    ASSERT_EQ(static_cast<int>(actual.size()), model_->dimensions());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      EXPECT_NEAR(actual[i], expected[i], 1e-3F) << i;
    }
  }
}

TEST_P(Encoder, NeighboursDoNotChangeBits) {
  std::vector<float> alone;
  std::vector<SequenceInput> inputs;
  for (const Reference& reference : references_) {
    inputs.push_back({.tokens = reference.tokens});
    const std::vector<float> one = run(*model_, {inputs.back()});
    alone.insert(alone.end(), one.begin(), one.end());
  }
  EXPECT_EQ(run(*model_, inputs), alone);
}

INSTANTIATE_TEST_SUITE_P(Families, Encoder,
                         testing::Values("bert", "bert_classifier", "xlm_roberta_reranker",
                                         "modernbert", "modernbert_classifier", "nomic_bert",
                                         "qwen3_embedding", "qwen3_classifier", "gemma3_embedding"),
                         [](const auto& info) { return std::string(info.param); });

TEST(SequenceModel, TokenTypesTellASecondTextApart) {
  const auto model = load_sequence_model(encoders() / "bert_classifier", {});
  const std::vector<std::int32_t> tokens = {5, 6, 7, 8, 9};
  EXPECT_NE(run(*model, {{.tokens = tokens}}),
            run(*model, {{.tokens = tokens, .second_segment = 2}}));
}

TEST(SequenceModel, GeneratesNoText) {
  EXPECT_TRUE(is_sequence_model(encoders() / "bert"));
  EXPECT_TRUE(is_sequence_model(encoders() / "qwen3_classifier"));
  EXPECT_THROW(load_model(encoders() / "bert", {}), base::LoadError);
  EXPECT_THROW(load_model(encoders() / "qwen3_classifier", {}), base::LoadError);
}

/// A copy of the tiny BERT with the given sentence-transformers modules.
fs::path with_modules(const tests::TemporaryFolder& folder, const std::string& pooling) {
  const fs::path copy = folder.path() / "model";
  fs::copy(encoders() / "bert", copy, fs::copy_options::recursive);
  fs::create_directories(copy / "1_Pooling");
  std::ofstream(copy / "modules.json")
      << R"([{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
            {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])";
  std::ofstream(copy / "1_Pooling/config.json") << pooling;
  return copy;
}

TEST(SequenceModel, PoolsAsTheCheckpointSays) {
  const Reference reference = read_references(encoders() / "bert")[0];
  const std::size_t width = reference.output.size() / reference.tokens.size();
  const auto first_row = [&](std::size_t row) {
    const auto begin = reference.output.begin() + static_cast<std::ptrdiff_t>(row * width);
    std::vector<float> values(begin, begin + static_cast<std::ptrdiff_t>(width));
    float squares = 0;
    for (const float value : values) squares += value * value;
    for (float& value : values) value /= std::sqrt(squares);
    return values;
  };
  const std::vector<std::pair<std::string, std::size_t>> cases = {
      {R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})", 0},
      {R"({"pooling_mode_lasttoken": true})", reference.tokens.size() - 1}};
  for (const auto& [pooling, row] : cases) {
    const tests::TemporaryFolder folder;
    const auto model = load_sequence_model(with_modules(folder, pooling), {});
    const std::vector<float> actual = run(*model, {{.tokens = reference.tokens}});
    const std::vector<float> expected = first_row(row);
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-4F);
  }
}

TEST(SequenceModel, RefusesPoolingItDoesNotKnow) {
  for (const char* pooling :
       {R"({"pooling_mode_weightedmean_tokens": true})", R"({"pooling_mode_mean_tokens": false})",
        R"({"pooling_mode_mean_tokens": true, "unheard_of": 1})"}) {
    const tests::TemporaryFolder folder;
    EXPECT_THROW(load_sequence_model(with_modules(folder, pooling), {}), base::LoadError);
  }
}

/// all-MiniLM-L6-v2 against sentence-transformers' vectors of the same ids.
TEST(SequenceModel, MinilmAgreesWithSentenceTransformers) {
  const char* given = std::getenv("ESPALIER_TEST_EMBEDDING_MODEL");
  const char* home = std::getenv("HOME");
  const fs::path path = given != nullptr ? fs::path(given)
                                         : fs::path(home != nullptr ? home : "") /
                                               ".espalier/models/all-MiniLM-L6-v2";
  if (!fs::exists(path / "modules.json")) {
    GTEST_SKIP() << "all-MiniLM-L6-v2 is absent";
  }
  const auto model = load_sequence_model(path, {});
  std::ifstream file(fs::path(ESPALIER_SOURCE_DIR) / "tests/generation/embeddings/minilm.json");
  for (const auto& reference : nlohmann::json::parse(file)) {
    const auto expected = reference["embedding"].get<std::vector<float>>();
    const std::vector<float> actual =
        run(*model, {{.tokens = reference["tokens"].get<std::vector<std::int32_t>>()}});
    ASSERT_EQ(actual.size(), expected.size());
    double cosine = 0;  // both have length 1
    for (std::size_t i = 0; i < actual.size(); ++i) {
      cosine += static_cast<double>(actual[i]) * expected[i];
    }
    EXPECT_GT(cosine, 1 - 1e-4) << reference["text"];
  }
}

}  // namespace
}  // namespace espalier::models
