#include <filesystem>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "arrays/gguf.h"
#include "arrays/safetensors.h"
#include "support/fixtures.h"

namespace espalier::arrays {
namespace {

// What the `gguf` Python package 0.19 reads from the same file.
TEST(Checkpoints, ReadsSmolLm2) {
  const auto path = tests::test_model();
  if (!path) GTEST_SKIP() << "the default model is not there";
  const auto file = GgufFile::open(*path);
  const GgufMetadata& metadata = file->metadata();
  EXPECT_EQ(metadata.require_string("general.architecture"), "llama");
  EXPECT_EQ(metadata.require_integer("llama.block_count"), 30);
  EXPECT_EQ(metadata.require_integer("llama.context_length"), 8192);
  EXPECT_FLOAT_EQ(metadata.require_number("llama.rope.freq_base"), 100000.0);
  ASSERT_NE(metadata.strings("tokenizer.ggml.tokens"), nullptr);
  EXPECT_EQ(metadata.strings("tokenizer.ggml.tokens")->size(), 49152U);
  EXPECT_EQ(metadata.strings("tokenizer.ggml.tokens")->at(1), "<|im_start|>");
  EXPECT_EQ(file->tensors().size(), 272U);
  const TensorView* weight = file->find("blk.0.attn_k.weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->type, StorageType::q4_1);
  EXPECT_EQ(weight->shape, (std::vector<std::int64_t>{192, 576}));
  EXPECT_EQ(weight->bytes.size(), 192U * 576 / 32 * 20);
}

TEST(Checkpoints, ReadsTinyLlama) {
  const auto folder = tests::fixture_folder("tiny-text");
  if (!folder) GTEST_SKIP() << "shared fixtures are not there";
  const auto file = open_safetensors_folder(*folder / "a" / "llama");
  const TensorView* table = file->find("model.embed_tokens.weight");
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->type, StorageType::bf16);
  EXPECT_EQ(table->shape, (std::vector<std::int64_t>{320, 64}));
  const auto reference = open_safetensors(*folder / "a" / "llama" / "ref.safetensors");
  ASSERT_NE(reference->find("logits"), nullptr);
  EXPECT_EQ(reference->find("logits")->shape, (std::vector<std::int64_t>{2, 24, 320}));
  EXPECT_EQ(reference->find("greedy")->type, StorageType::i64);
}

TEST(Checkpoints, ReadsEveryTinyModel) {
  const auto folder = tests::fixture_folder("tiny-text");
  if (!folder) GTEST_SKIP() << "shared fixtures are not there";
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(*folder / "a")) {
    if (!std::filesystem::exists(entry.path() / "model.safetensors")) continue;
    EXPECT_FALSE(open_safetensors_folder(entry.path())->tensors().empty()) << entry.path();
    ++models;
  }
  EXPECT_EQ(models, 81);
}

}  // namespace
}  // namespace espalier::arrays
