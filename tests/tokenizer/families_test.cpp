// Every tokenizer.json of the reference fixtures against transformers' results.

#include <gtest/gtest.h>

#include "support/text_cases.h"
#include "tokenizer/tokenizer.h"

namespace espalier::tokenizer {
namespace {

using Ids = std::vector<TokenId>;

class Families : public testing::TestWithParam<std::filesystem::path> {
 protected:
  void SetUp() override {
    cases_ = tests::read_json(GetParam() / "cases.json");
    tokenizer_ = load_tokenizer(tests::tokenizer_folder(GetParam())->path());
  }

  nlohmann::json cases_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_P(Families, Encode) {
  for (const auto& entry : cases_["encode"]) {
    SCOPED_TRACE(entry["name"].dump());
    const auto text = entry["text"].get<std::string>();
    EXPECT_EQ(tokenizer_->encode(text, SpecialTokens::recognise), entry["ids"].get<Ids>());
    EXPECT_EQ(tokenizer_->encode(text, SpecialTokens::add), entry["ids_special"].get<Ids>());
  }
  for (const auto& entry : cases_["chat"]) {
    if (!entry.contains("rendered")) continue;
    SCOPED_TRACE(entry["conversation"].dump());
    EXPECT_EQ(tokenizer_->encode(entry["rendered"].get<std::string>(), SpecialTokens::recognise),
              entry["ids"].get<Ids>());
  }
}

TEST_P(Families, Decode) {
  for (const auto& entry : cases_["encode"]) {
    SCOPED_TRACE(entry["name"].dump());
    EXPECT_EQ(tokenizer_->decode(entry["ids"].get<Ids>(), false), entry["decode"]);
    EXPECT_EQ(tokenizer_->decode(entry["ids_special"].get<Ids>(), true),
              entry["decode_skip_special"]);
  }
  for (const auto& entry : cases_["decode"]) {
    SCOPED_TRACE(entry["name"].dump());
    EXPECT_EQ(tokenizer_->decode(entry["ids"].get<Ids>(), false), entry["decode"]);
    EXPECT_EQ(tokenizer_->decode(entry["ids"].get<Ids>(), true), entry["decode_skip_special"]);
  }
}

std::vector<std::string> stream_pieces(const Tokenizer& tokenizer, const Ids& ids) {
  const auto stream = tokenizer.stream(false);
  std::vector<std::string> pieces;
  for (const TokenId id : ids) pieces.push_back(stream->push(id));
  const std::string rest = stream->finish();
  if (!pieces.empty()) pieces.back() += rest;
  return pieces;
}

TEST_P(Families, StreamedPiecesAreExact) {
  for (const auto& entry : cases_["encode"]) {
    if (!entry.contains("stream")) continue;
    SCOPED_TRACE(entry["name"].dump());
    EXPECT_EQ(stream_pieces(*tokenizer_, entry["ids"].get<Ids>()),
              entry["stream"].get<std::vector<std::string>>());
  }
}

TEST_P(Families, SpecialTokensInLiteralTextStayText) {
  for (TokenId id = 0; id < tokenizer_->vocabulary_size(); ++id) {
    if (!tokenizer_->is_special(id)) continue;
    const std::string name = tokenizer_->token_name(id);
    for (const std::string& text : {name, "Say " + name + "now"}) {
      for (const TokenId found : tokenizer_->encode(text, SpecialTokens::literal)) {
        const bool unknown = tokenizer_->token_name(found) ==
                             cases_["special_tokens"].value("unk_token", std::string());
        EXPECT_TRUE(unknown || !tokenizer_->is_special(found)) << text << " gave " << found;
      }
    }
  }
}

TEST_P(Families, VocabularySize) {
  EXPECT_EQ(tokenizer_->vocabulary_size(), cases_["vocab_size"].get<int>());
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Families);
INSTANTIATE_TEST_SUITE_P(Text, Families, testing::ValuesIn(tests::text_cases("tokenizers")),
                         [](const auto& info) { return tests::case_name(info.param); });

TEST(FamilyFixtures, ArePresent) {
  if (!tests::shared_folder()) GTEST_SKIP() << "../shared is absent: no reference tokenizers";
  EXPECT_FALSE(tests::text_cases("tokenizers").empty());
}

}  // namespace
}  // namespace espalier::tokenizer
