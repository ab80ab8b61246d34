// The resolved description of each family, as committed under tests/models/golden. After a wanted
// change run this with ESPALIER_WRITE_GOLDEN=1 and review the difference.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "models/checkpoint.h"
#include "models/print.h"
#include "models/registry.h"
#include "support/text_families.h"

namespace espalier::models {
namespace {

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, DescriptionIsAsReviewed) {
  const auto checkpoint = tests::text_checkpoint(GetParam());
  if (!checkpoint) {
    GTEST_SKIP() << "shared/fixtures/tiny-text.tar.xz is absent";
  }
  ConfigReader reader = open_config(*checkpoint / "config.json");
  const std::string text = to_text(to_json(describe_model(reader)));
  const std::filesystem::path path = std::filesystem::path(ESPALIER_SOURCE_DIR) /
                                     "tests/models/golden" / (std::string(GetParam()) + ".txt");
  if (std::getenv("ESPALIER_WRITE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
  }
  std::stringstream expected;
  expected << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, expected.str());
}

INSTANTIATE_TEST_SUITE_P(Families, Golden, testing::ValuesIn(tests::text_families),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace espalier::models
