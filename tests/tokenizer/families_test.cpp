// Every tokenizer.json of the reference fixtures against transformers' results.

#include <gtest/gtest.h>

#include "base/error.h"
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
    EXPECT_EQ(tokenizer.decode(entry["ids"].get<Ids>(), false), entry["decode"].get<std::string>());
    EXPECT_EQ(tokenizer.decode(entry["ids_special"].get<Ids>(), true),
              entry["decode_skip_special"].get<std::string>());
  }
  for (const auto& entry : cases["decode"]) {
    SCOPED_TRACE(entry["name"].dump());
    EXPECT_EQ(tokenizer.decode(entry["ids"].get<Ids>(), false), entry["decode"].get<std::string>());
    EXPECT_EQ(tokenizer.decode(entry["ids"].get<Ids>(), true),
              entry["decode_skip_special"].get<std::string>());
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

/// A span that is marked is encoded as the whole text would be if it were plain, and what stands
/// around it as ever.
void expect_marked_text(const Tokenizer& tokenizer) {
  for (TokenId id = 0, tried = 0; id < tokenizer.vocabulary_size() && tried < 40; ++id) {
    if (!tokenizer.is_special(id)) continue;
    ++tried;
    const std::string name = tokenizer.token_name(id);
    const std::string text = "Say " + name + "now";
    const std::vector<TextSpan> literal = {{4, 4 + name.size()}};
    EXPECT_EQ(tokenizer.encode_prompt(text, {.literal = literal}),
              tokenizer.encode(text, SpecialTokens::literal))
        << text;
    EXPECT_EQ(tokenizer.encode_prompt(text, {}), tokenizer.encode(text, SpecialTokens::recognise));
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
  expect_marked_text(*tokenizer);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Families);
INSTANTIATE_TEST_SUITE_P(Text, Families, testing::ValuesIn(tests::text_cases("tokenizers")),
                         [](const auto& info) { return tests::case_name(info.param); });

std::vector<std::filesystem::path> sentencepiece_families() {
  auto folders = tests::text_cases("tokenizers");
  std::erase_if(folders,
                [](const auto& folder) { return !exists(folder / "sentencepiece.model"); });
  return folders;
}

class SentencePieceFiles : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(SentencePieceFiles, EncodeAsSentencePiece) {
  const auto cases = tests::read_json(GetParam() / "cases.json");
  const tests::ScratchFolder folder;
  std::filesystem::copy_file(GetParam() / "sentencepiece.model", folder.path() / "tokenizer.model");
  std::filesystem::copy_file(GetParam() / "tokenizer_config.json",
                             folder.path() / "tokenizer_config.json");
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->vocabulary_size(), cases["vocab_size"].get<int>());
  for (const auto& entry : cases["encode"]) {
    SCOPED_TRACE(entry["name"].dump());
    // SentencePiece knows no special tokens in a text.
    const auto expected = entry["sentencepiece_ids"].get<Ids>();
    const auto text = entry["text"].get<std::string>();
    const auto name = entry["name"].get<std::string>();
    if (!name.starts_with("special_") && name != "tool_markup") {
      EXPECT_EQ(tokenizer->encode(text, SpecialTokens::recognise), expected);
    }
    EXPECT_EQ(tokenizer->decode(entry["ids"].get<Ids>(), false),
              entry["decode"].get<std::string>());
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SentencePieceFiles);
INSTANTIATE_TEST_SUITE_P(Text, SentencePieceFiles, testing::ValuesIn(sentencepiece_families()),
                         [](const auto& info) { return tests::case_name(info.param); });

TEST(WholeVocabulary, RoundTrips) {
  const auto shared = tests::shared_folder();
  if (!shared) GTEST_SKIP() << "../shared is absent: no reference tokenizers";
  for (const char* family : {"smollm2", "mistral_v3"}) {
    SCOPED_TRACE(family);
    const auto folder = tests::tokenizer_folder(*shared / "fixtures/text/tokenizers" / family);
    const auto tokenizer = load_tokenizer(folder->path());
    for (TokenId id = 0; id < tokenizer->vocabulary_size(); ++id) {
      const std::string text = tokenizer->decode(Ids{id}, false);
      if (text.find("\xEF\xBF\xBD") != std::string::npos) continue;  // a part of a character
      const Ids ids = tokenizer->encode(text, SpecialTokens::recognise);
      ASSERT_EQ(tokenizer->decode(ids, false), text) << id;
    }
  }
}

TEST(LoadTokenizer, NamesWhatIsMissingOrMalformed) {
  const tests::ScratchFolder folder;
  const auto message = [&] {
    try {
      load_tokenizer(folder.path());
    } catch (const base::LoadError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message().find("There is no tokenizer.json"), std::string::npos) << message();
  std::ofstream(folder.path() / "tokenizer.model") << "YQ== 0\nYg== 2\n";
  EXPECT_NE(message().find("tokenizer.model is not a tokenizer: line 2 has rank 2"),
            std::string::npos)
      << message();
  std::ofstream(folder.path() / "tekken.json") << "{}";
  EXPECT_NE(message().find("tekken.json"), std::string::npos) << message();
}

TEST(BuildTokenizer, NamesAnUnknownPreTokenizer) {
  GgufVocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = "nonesuch";
  vocabulary.tokens = {"a"};
  try {
    build_tokenizer(vocabulary, "model.gguf");
    FAIL() << "built";
  } catch (const base::LoadError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("model.gguf"), std::string::npos);
    EXPECT_NE(text.find("nonesuch"), std::string::npos);
  }
}

TEST(FamilyFixtures, ArePresent) {
  if (!tests::shared_folder()) GTEST_SKIP() << "../shared is absent: no reference tokenizers";
  EXPECT_FALSE(tests::text_cases("tokenizers").empty());
}

}  // namespace
}  // namespace espalier::tokenizer
