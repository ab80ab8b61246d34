// Every instance of the JSON Schema Test Suite: no text that its schema forbids is taken, and what
// else differs is listed, with the reason.

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "base/error.h"
#include "grammar/grammar.h"
#include "support/text_cases.h"

namespace espalier::grammar {
namespace {

using nlohmann::ordered_json;
using tokenizer::TokenId;

std::filesystem::path suite_folder() {
  return std::filesystem::path(ESPALIER_SOURCE_DIR) / "tests/grammar/json_schema_test_suite";
}

/// The texts that stand below the reasons of one part of exceptions.json.
std::set<std::string> listed(const nlohmann::json& reasons) {
  std::set<std::string> texts;
  for (const auto& list : reasons) texts.insert(list.begin(), list.end());
  return texts;
}

struct Outcome {
  std::set<std::string> refused;   // schemas
  std::set<std::string> rejected;  // valid texts
  std::set<std::string> wrong;     // texts taken although they are not valid
  int right = 0;
};

class Suite {
 public:
  explicit Suite(const std::filesystem::path& family) {
    const auto folder = tests::tokenizer_folder(family);
    tokenizer_ = tokenizer::load_tokenizer(folder->path());
    compiler_ = make_compiler(tokenizer_, tokenizer_->vocabulary_size(), {0});
  }

  void run(const std::filesystem::path& file, const std::string& name, Outcome& outcome) {
    std::ifstream stream(file);
    for (const auto& entry : ordered_json::parse(stream)) {
      const std::string place = name + ": " + entry["description"].get<std::string>();
      std::shared_ptr<const Constraint> constraint;
      try {
        constraint = compiler_->compile({Notation::json_schema, entry["schema"].dump(), {}});
      } catch (const base::RequestError&) {
        outcome.refused.insert(place);
        continue;
      }
      for (const auto& test : entry["tests"]) {
        const bool valid = test["valid"].get<bool>();
        const std::string text = place + ": " + test["description"].get<std::string>();
        if (takes(*constraint, test["data"].dump()) == valid) {
          ++outcome.right;
        } else {
          (valid ? outcome.rejected : outcome.wrong).insert(text);
        }
      }
    }
  }

 private:
  bool takes(const Constraint& constraint, const std::string& text) const {
    const auto matcher = constraint.start();
    try {
      for (const TokenId id : tokenizer_->encode(text, tokenizer::SpecialTokens::literal)) {
        matcher->commit(id);
      }
      return matcher->accepting();
    } catch (const std::runtime_error&) {
      return false;
    }
  }

  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  std::shared_ptr<Compiler> compiler_;
};

TEST(SchemaSuite, DiffersOnlyWhereListed) {
  const auto families = tests::text_cases("tokenizers");
  const auto family = std::ranges::find_if(
      families, [](const auto& folder) { return folder.filename() == "smollm2"; });
  if (family == families.end()) GTEST_SKIP() << "the tokenizers of the fixtures are absent";
  const auto exceptions = tests::read_json(suite_folder() / "exceptions.json");
  Suite suite(*family);
  Outcome outcome;
  for (const auto& file : std::filesystem::recursive_directory_iterator(suite_folder())) {
    if (file.path().extension() != ".json" || file.path().stem() == "exceptions") continue;
    suite.run(file.path(),
              std::filesystem::relative(file.path(), suite_folder()).replace_extension().string(),
              outcome);
  }
  EXPECT_EQ(outcome.wrong, std::set<std::string>());
  EXPECT_EQ(outcome.rejected, listed(exceptions["valid texts not taken"]));
  EXPECT_EQ(outcome.refused, listed(exceptions["schemas refused"]));
  EXPECT_GT(outcome.right, 1000);
}

}  // namespace
}  // namespace espalier::grammar
