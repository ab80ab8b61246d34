// Texts with a limit of tokens, chosen at random among what masks allow: whatever a model likes to
// write, the text is complete when its limit is reached.

#include <algorithm>
#include <random>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "grammar/grammar_tools.h"

namespace espalier::grammar {
namespace {

using tokenizer::TokenId;

struct Walk {
  std::string text;
  int tokens = 0;
  bool complete = false;
};

class EndingTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!tools()) GTEST_SKIP() << "the tokenizers of the fixtures are absent";
  }

  static std::unique_ptr<Matcher> start(const std::string& schema,
                                        std::optional<Reasoning> reasoning = {}) {
    return tools()
        ->compiler->compile({Notation::json_schema, schema, std::move(reasoning)})
        ->start();
  }

  static std::vector<TokenId> allowed(Matcher& matcher) {
    std::vector<std::uint32_t> words(static_cast<std::size_t>(matcher.mask_words()));
    matcher.mask(words);
    std::vector<TokenId> ids;
    for (std::size_t id = 0; id < words.size() * 32; ++id) {
      if (words[id / 32] >> (id % 32) & 1U) ids.push_back(static_cast<TokenId>(id));
    }
    return ids;
  }

  /// Goes on by random tokens until the text is complete or has `limit` tokens.
  static Walk walk(Matcher& matcher, int limit, unsigned seed) {
    std::minstd_rand random(seed);
    Walk result;
    while (!matcher.stopped() && result.tokens < limit) {
      const auto ids = allowed(matcher);
      const TokenId id = ids.at(random() % ids.size());
      if (id == 0) break;
      matcher.commit(id);
      result.text += tools()->tokenizer->token_bytes(id);
      ++result.tokens;
    }
    result.complete = matcher.accepting();
    return result;
  }
};

struct Case {
  const char* name;
  const char* schema;
  int limit;
};

class EndingOfSchema : public EndingTest, public testing::WithParamInterface<Case> {};

TEST_P(EndingOfSchema, IsReachedWithinTheLimit) {
  for (const unsigned seed : {1U, 2U}) {
    const auto matcher = start(GetParam().schema);
    matcher->limit(static_cast<std::size_t>(GetParam().limit));
    const Walk result = walk(*matcher, GetParam().limit, seed);
    EXPECT_TRUE(result.complete) << result.text;
    EXPECT_TRUE(nlohmann::json::accept(result.text)) << result.text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    , EndingOfSchema,
    testing::Values(Case{"Strings", R"({"type":"object","properties":{"name":{"type":"string"},
            "title":{"type":"string"},"note":{"type":["string","null"]}},
            "required":["name","title","note"],"additionalProperties":false})",
                         60},
                    Case{"AnyObject", R"({"type":"object"})", 25}, Case{"AnyValue", "{}", 40},
                    Case{"Numbers", R"({"type":"array","items":{"type":"number"},"minItems":3})",
                         40},
                    Case{"Patterns", R"({"type":"object","properties":{
            "email":{"type":"string","pattern":"^[a-z]+@[a-z]+\\.(com|org)$"},
            "when":{"type":"string","format":"date-time"},"id":{"type":"string","format":"uuid"},
            "long":{"type":"string","minLength":40}},
            "required":["email","when","id","long"],"additionalProperties":false})",
                         140},
                    Case{"Recursion", R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object",
            "properties":{"value":{"type":"integer"},"children":{"type":"array",
            "items":{"$ref":"#/$defs/node"}}},"required":["value","children"],
            "additionalProperties":false}}})",
                         70},
                    Case{"Options", R"({"type":"object","properties":{"a":{"type":"string"},
            "b":{"type":"array","items":{"type":"object","properties":{"c":{"type":"string"},
            "d":{"enum":["red","green"]}},"required":["c","d"]}},"e":{"type":"boolean"}}})",
                         60}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(EndingTest, ClosesReasoningFirst) {
  const auto matcher = start(R"({"type":"object","properties":{"a":{"type":"string"}},
      "required":["a"],"additionalProperties":false})",
                             Reasoning{.close = "</think>"});
  matcher->limit(50);
  const Walk result = walk(*matcher, 50, 3);
  EXPECT_TRUE(result.complete);
  const auto close = result.text.find("</think>");
  ASSERT_NE(close, std::string::npos) << result.text;
  EXPECT_TRUE(nlohmann::json::accept(result.text.substr(close + 8))) << result.text;
}

TEST_F(EndingTest, BeginsNoFurtherPartAtTheEnd) {
  const auto constraint = tools()->compiler->compile(
      {Notation::lark,
       "start: item (\"\\n\" item)*\nitem: \"begin one item, \" /[a-z]+/ \", end it\"",
       {}});
  for (const unsigned seed : {1U, 2U, 3U}) {
    const auto matcher = constraint->start();
    matcher->limit(80);
    const Walk result = walk(*matcher, 80, seed);
    EXPECT_TRUE(result.complete) << result.text;
  }
}

TEST_F(EndingTest, LeavesChoicesThatHaveRoom) {
  const auto constraint = tools()->compiler->compile(
      {Notation::json_schema, R"({"enum":["a","a b c d","no","yes, of course"]})", {}});
  std::set<std::string> texts;
  for (unsigned seed = 0; seed < 24; ++seed) {
    const auto matcher = constraint->start();
    matcher->limit(12);
    texts.insert(walk(*matcher, 12, seed).text);
  }
  EXPECT_GE(texts.size(), 3U);
}

TEST_F(EndingTest, ChangesNothingFarFromTheLimit) {
  const char* schema = R"({"type":"object","properties":{"a":{"type":"string"}}})";
  const auto free = start(schema);
  const auto limited = start(schema);
  limited->limit(500);
  EXPECT_EQ(allowed(*limited), allowed(*free));
  for (const TokenId id : tools()->tokenizer->encode(R"({"a": ")", {})) {
    free->commit(id);
    limited->commit(id);
  }
  EXPECT_EQ(allowed(*limited), allowed(*free));
}

TEST_F(EndingTest, ChangesNothingWhereThereIsNoRoom) {
  const char* schema = R"({"type":"array","items":{"type":"boolean"},"minItems":30})";
  const auto free = start(schema);
  const auto limited = start(schema);
  limited->limit(5);
  EXPECT_EQ(allowed(*limited), allowed(*free));
}

TEST_F(EndingTest, TakesTokensBack) {
  const auto matcher = start(R"({"type":"string"})");
  matcher->limit(40);
  const auto ids = tools()->tokenizer->encode("\"one two three four five six", {});
  for (const TokenId id : ids) matcher->commit(id);
  matcher->rollback(static_cast<int>(ids.size()));
  const Walk result = walk(*matcher, 40, 4);
  EXPECT_TRUE(result.complete) << result.text;
  EXPECT_GE(result.tokens, 20);  // there was room again
}

}  // namespace
}  // namespace espalier::grammar
