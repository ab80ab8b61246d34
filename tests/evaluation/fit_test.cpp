#include "evaluation/fit.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/fixtures.h"
#include "support/temporary_folder.h"

namespace espalier::evaluation {
namespace {

/// SmolLM2-135M: 30 layers of 3 key-value heads of 64, 134.5 million parameters.
TEST(Fit, KnowsTheRealModelFromItsHeader) {
  const auto model = tests::test_model();
  if (!model) GTEST_SKIP() << "the test model is absent";
  const FitReport report = fit(*model, {.memory = 4'000'000'000});
  EXPECT_EQ(report.model.family, "llama");
  EXPECT_EQ(report.model.container, "gguf");
  EXPECT_EQ(report.model.parameters, 134'515'008);
  EXPECT_EQ(report.context, 8192);
  EXPECT_EQ(report.state.at("f16").bytes_per_token, 30U * 2 * 3 * 64 * 2);
  EXPECT_EQ(report.state.at("f32").bytes_per_token, 30U * 2 * 3 * 64 * 4);
  EXPECT_EQ(report.state.at("f16").largest_context, 8192);
  EXPECT_NEAR(static_cast<double>(report.model.weight_bytes), 98'362'432, 3e6);
  // Its types take as many bytes in the kernels' order.
  EXPECT_NEAR(static_cast<double>(report.repacked), static_cast<double>(report.model.weight_bytes),
              1e6);
  EXPECT_TRUE(report.fits);
}

TEST(Fit, LessMemoryMeansLessContextAndThenNone) {
  const auto model = tests::test_model();
  if (!model) GTEST_SKIP() << "the test model is absent";
  const FitReport whole = fit(*model, {.memory = 4'000'000'000});
  const std::uint64_t fixed = whole.repacked + whole.workspace;
  const std::uint64_t token = whole.state.at("f16").bytes_per_token;
  const FitReport little = fit(*model, {.memory = fixed + 1000 * token});
  EXPECT_LE(little.state.at("f16").largest_context, 1000);
  EXPECT_GT(little.state.at("f16").largest_context, 900);
  const FitReport two = fit(*model, {.memory = fixed + 1000 * token, .running = 2});
  EXPECT_LE(two.state.at("f16").largest_context, 500);
  EXPECT_FALSE(fit(*model, {.memory = fixed / 2}).fits);
}

TEST(Fit, KnowsAFolder) {
  const auto folder = tests::fixture_folder("tiny-text");
  if (!folder) GTEST_SKIP() << "shared/fixtures/tiny-text.tar.xz is absent";
  const FitReport report = fit(*folder / "a" / "llama", {.memory = 1'000'000'000});
  EXPECT_EQ(report.model.container, "safetensors");
  EXPECT_EQ(report.model.bits_per_weight, 16);
  EXPECT_EQ(report.model.bytes_by_type.size(), 1U);
  EXPECT_TRUE(report.fits);
}

/// Mistral's layers all see a window of 8 positions: however long a request, it holds no more
/// than the window, a chunk and the KV block where they begin.
TEST(Fit, WindowsBoundTheKeysAndValues) {
  const auto folder = tests::fixture_folder("tiny-text");
  if (!folder) GTEST_SKIP() << "shared/fixtures/tiny-text.tar.xz is absent";
  constexpr int chunk = 32;
  const FitReport report =
      fit(*folder / "a" / "mistral", {.memory = 1'000'000'000, .prefill_chunk = chunk});
  const FitReport::State& state = report.state.at("f16");
  EXPECT_EQ(state.largest_context, 512);
  EXPECT_LE(state.bytes_of_largest, state.bytes_per_token * (8 + chunk + 2 * 64));
  EXPECT_GE(state.bytes_of_largest, state.bytes_per_token * (8 + chunk));
}

TEST(Fit, NamesADamagedModel) {
  const tests::TemporaryFolder folder;
  EXPECT_THROW(fit(folder.write("model.gguf", "GGUF"), {}), base::LoadError);
}

}  // namespace
}  // namespace espalier::evaluation
