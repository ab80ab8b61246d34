// Every tokenizer.json of the reference fixtures against transformers' results.

#include <gtest/gtest.h>

#include "support/text_cases.h"
#include "tokenizer/tokenizer.h"

namespace espalier::tokenizer {
namespace {

using Ids = std::vector<TokenId>;

void expect_encodings(const Tokenizer& tokenizer, const nlohmann::json& cases) {
  for (const auto& entry : cases["encode"]) {
    SCOPED_TRACE(entry["name"].dump());
    const auto text = entry["text"].get<std::string>();
    EXPECT_EQ(tokenizer.encode(text, SpecialTokens::recognise), entry["ids"].get<Ids>());
    EXPECT_EQ(tokenizer.encode(text, SpecialTokens::add), entry["ids_special"].get<Ids>());
  }
  for (const auto& entry : cases["chat"]) {
    if (!entry.contains("rendered")) continue;
    SCOPED_TRACE(entry["conversation"].dump());
    EXPECT_EQ(tokenizer.encode(entry["rendered"].get<std::string>(), SpecialTokens::recognise),
              entry["ids"].get<Ids>());
  }
}

void expect_decodings(const Tokenizer& tokenizer, const nlohmann::json& cases) {
  for (const auto& entry : cases["encode"]) {
    SCOPED_TRACE(entry["name"].dump());
    EXPECT_EQ(tokenizer.decode(entry["ids"].get<Ids>(), false), entry["decode"]);
    EXPECT_EQ(tokenizer.decode(entry["ids_special"].get<Ids>(), true),
              entry["decode_skip_special"]);
  }
  for (const auto& entry : cases["decode"]) {
    SCOPED_TRACE(entry["name"].dump());
    EXPECT_EQ(tokenizer.decode(entry["ids"].get<Ids>(), false), entry["decode"]);
    EXPECT_EQ(tokenizer.decode(entry["ids"].get<Ids>(), true), entry["decode_skip_special"]);
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

void expect_stream_pieces(const Tokenizer& tokenizer, const nlohmann::json& cases) {
  for (const auto& entry : cases["encode"]) {
    if (!entry.contains("stream")) continue;
    SCOPED_TRACE(entry["name"].dump());
    EXPECT_EQ(stream_pieces(tokenizer, entry["ids"].get<Ids>()),
              entry["stream"].get<std::vector<std::string>>());
  }
}

/// Text that spells a special token must not become it.
void expect_literal_text(const Tokenizer& tokenizer, const nlohmann::json& cases) {
  const auto unknown = cases["special_tokens"].value("unk_token", std::string());
  for (TokenId id = 0; id < tokenizer.vocabulary_size(); ++id) {
    if (!tokenizer.is_special(id)) continue;
    const std::string name = tokenizer.token_name(id);
    for (const std::string& text : {name, "Say " + name + "now"}) {
      for (const TokenId found : tokenizer.encode(text, SpecialTokens::literal)) {
        EXPECT_TRUE(!tokenizer.is_special(found) || tokenizer.token_name(found) == unknown)
            << text << " gave " << found;
      }
    }
  }
}

class Families : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Families, EncodeDecodeAndStreamAsTransformers) {
  const auto cases = tests::read_json(GetParam() / "cases.json");
  const auto tokenizer = load_tokenizer(tests::tokenizer_folder(GetParam())->path());
  EXPECT_EQ(tokenizer->vocabulary_size(), cases["vocab_size"].get<int>());
  expect_encodings(*tokenizer, cases);
  expect_decodings(*tokenizer, cases);
  expect_stream_pieces(*tokenizer, cases);
  expect_literal_text(*tokenizer, cases);
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
