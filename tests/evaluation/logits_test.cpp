#include "evaluation/logits.h"

#include <cmath>
#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "arrays/safetensors.h"
#include "base/error.h"
#include "evaluation/bigram_model.h"
#include "evaluation/token_rows.h"
#include "models/model.h"
#include "support/fixtures.h"
#include "support/temporary_folder.h"

namespace espalier::evaluation {
namespace {

using testing::ElementsAre;
using tests::BigramModel;
using tokenizer::TokenId;

std::vector<float> floats(const arrays::TensorView& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

TEST(Logits, WritesEveryPositionWhateverTheChunk) {
  for (const int chunk : {1, 2, 3, 64}) {
    BigramModel bigram({{0.25, 0.75}, {0.5, 0.5}});
    const tests::TemporaryFolder folder;
    const auto path = folder.path() / "out.safetensors";
    write_logits(bigram, {{0, 1, 0}, {1, 1, 0}}, path, {.chunk = chunk});
    const auto file = arrays::open_safetensors(path);
    const arrays::TensorView* logits = file->find("logits");
    ASSERT_NE(logits, nullptr);
    EXPECT_THAT(logits->shape, ElementsAre(2, 3, 2));
    const float quarter = std::log(0.25F);
    const float rest = std::log(0.75F);
    const float half = std::log(0.5F) + 1;
    EXPECT_THAT(floats(*logits), testing::Pointwise(testing::FloatEq(),
                                                    {quarter, rest, half, half, quarter, rest,  //
                                                     half, half, half, half, quarter, rest}));
  }
}

TEST(Logits, RefusesBadRows) {
  BigramModel bigram({{0.25, 0.75}, {0.5, 0.5}}, 4);
  const tests::TemporaryFolder folder;
  const auto path = folder.path() / "out.safetensors";
  EXPECT_THROW(write_logits(bigram, {{0, 2}}, path, {}), base::UsageError);
  EXPECT_THROW(write_logits(bigram, {{0, -1}}, path, {}), base::UsageError);
  EXPECT_THROW(write_logits(bigram, {{0}, {0, 1}}, path, {}), base::UsageError);
  EXPECT_THROW(write_logits(bigram, {{0, 0, 0, 0, 0}}, path, {}), base::UsageError);
  EXPECT_THROW(write_logits(bigram, {{0}}, path, {.chunk = 0}), base::UsageError);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(TokenRows, ReadsEquallyLongRows) {
  const tests::TemporaryFolder folder;
  EXPECT_THAT(read_token_rows(folder.write("ids.json", "[[1,2],[3,4]]")),
              ElementsAre(ElementsAre(1, 2), ElementsAre(3, 4)));
  for (const char* text : {"", "[", "{}", "[]", "[[]]", "[1]", "[[1],[1,2]]", "[[1.5]]", "[[-1]]",
                           "[[4294967296]]", "[[\"1\"]]"}) {
    EXPECT_THROW(read_token_rows(folder.write("ids.json", text)), base::LoadError) << text;
  }
}

// The reference logits that transformers computed in f32; see the fixtures' description.
TEST(Logits, AgreeWithTransformersOnTinyModels) {
  const auto folder = tests::fixture_folder("tiny-text");
  if (!folder) GTEST_SKIP() << "shared fixtures are not there";
  for (const char* name : {"llama", "llama3_rope", "llama_tied_bias", "gemma3_text"}) {
    SCOPED_TRACE(name);
    const auto reference = arrays::open_safetensors(*folder / "a" / name / "ref.safetensors");
    const arrays::TensorView* ids = reference->find("input_ids");
    std::vector<std::int64_t> wide(ids->bytes.size() / sizeof(std::int64_t));
    std::memcpy(wide.data(), ids->bytes.data(), ids->bytes.size());
    const auto length = static_cast<std::ptrdiff_t>(ids->shape[1]);
    const auto middle = wide.begin() + length;
    const std::vector<std::vector<TokenId>> rows = {{wide.begin(), middle}, {middle, wide.end()}};
    const auto model = models::load_model(
        *folder / "a" / name,
        {.dtype = mlx::core::float32, .activations = kernels::ActivationFormat::f32});
    const tests::TemporaryFolder output;
    const auto path = output.path() / "out.safetensors";
    write_logits(*model, rows, path, {.chunk = 7});
    const auto file = arrays::open_safetensors(path);
    const std::vector<float> ours = floats(*file->find("logits"));
    const std::vector<float> theirs = floats(*reference->find("logits"));
    ASSERT_EQ(ours.size(), theirs.size());
    double sum = 0;
    double squares = 0;
    float error = 0;
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      sum += theirs[i];
      squares += static_cast<double>(theirs[i]) * theirs[i];
      error = std::max(error, std::abs(ours[i] - theirs[i]));
    }
    const auto count = static_cast<double>(theirs.size());
    const double deviation = std::sqrt(squares / count - sum / count * sum / count);
    EXPECT_LT(error, 1e-3 * deviation);
  }
}

}  // namespace
}  // namespace espalier::evaluation
