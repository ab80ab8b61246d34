// Grammars against what their own standards say of texts, with the tokenizers of the fixtures.

#include "grammar/grammar.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "grammar/grammar_tools.h"

namespace espalier::grammar {
namespace {

using tokenizer::SpecialTokens;
using tokenizer::TokenId;

class GrammarTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!tools()) GTEST_SKIP() << "the tokenizers of the fixtures are absent";
  }

  static std::shared_ptr<const Constraint> compile(Notation notation, const std::string& text,
                                                   std::optional<Reasoning> reasoning = {}) {
    return tools()->compiler->compile({notation, text, std::move(reasoning)});
  }

  /// Whether the grammar takes `text` as a whole.
  static bool takes(const Constraint& constraint, const std::string& text,
                    SpecialTokens special = SpecialTokens::literal) {
    const auto matcher = constraint.start();
    try {
      for (const TokenId id : tools()->tokenizer->encode(text, special)) matcher->commit(id);
      return matcher->accepting();
    } catch (const std::runtime_error&) {
      return false;
    }
  }

  static bool takes(Notation notation, const std::string& grammar, const std::string& text) {
    return takes(*compile(notation, grammar), text);
  }

  static std::string refusal(Notation notation, const std::string& text) {
    try {
      compile(notation, text);
    } catch (const base::RequestError& error) {
      EXPECT_EQ(error.status(), 400);
      return error.what();
    }
    return "accepted";
  }
};

TEST_F(GrammarTest, RegularExpressionsMatchTheWholeText) {
  EXPECT_TRUE(takes(Notation::regex, "^a+b/c$", "aab/c"));
  EXPECT_FALSE(takes(Notation::regex, "a+b", "aabb"));
  EXPECT_FALSE(takes(Notation::regex, "a+b", "a"));
  EXPECT_TRUE(takes(Notation::regex, "(é|日本)\\$", "日本$"));
  EXPECT_THAT(refusal(Notation::regex, "(a"), testing::HasSubstr("regular expression"));
}

TEST_F(GrammarTest, ChoicesAreTexts) {
  const std::string choices = R"(["yes", "yes or no", "\"quoted\"\n"])";
  EXPECT_TRUE(takes(Notation::choice, choices, "yes"));
  EXPECT_TRUE(takes(Notation::choice, choices, "yes or no"));
  EXPECT_TRUE(takes(Notation::choice, choices, "\"quoted\"\n"));
  EXPECT_FALSE(takes(Notation::choice, choices, "no"));
  EXPECT_THAT(refusal(Notation::choice, "[]"), testing::HasSubstr("no choices"));
}

TEST_F(GrammarTest, LarkHasSpecialTokensAndSchemas) {
  const auto constraint =
      compile(Notation::lark, "start: <|im_start|> %json {\"type\": \"integer\"} <|im_end|>");
  EXPECT_TRUE(takes(*constraint, "<|im_start|>12<|im_end|>", SpecialTokens::recognise));
  EXPECT_FALSE(takes(*constraint, "<|im_start|>12<|im_end|>", SpecialTokens::literal));
  EXPECT_FALSE(takes(*constraint, "<|im_start|>x<|im_end|>", SpecialTokens::recognise));
  EXPECT_THAT(refusal(Notation::lark, "start: %json {\"uniqueItems\": true}"),
              testing::HasSubstr("uniqueItems"));
  EXPECT_THAT(refusal(Notation::lark, "begin: \"a\""), testing::HasSubstr("start"));
}

TEST_F(GrammarTest, MarkupIsATokenOrText) {
  const auto& [tokenizer, compiler] = *tools();
  EXPECT_EQ(compiler->reference("<|im_end|>"),
            "<[" + std::to_string(*tokenizer->token_id("<|im_end|>")) + "]>");
  EXPECT_EQ(compiler->reference("<tool_call>"), "\"<tool_call>\"");
}

// The grammar of JSON as it goes around with llama.cpp has recursion, classes, escapes and bounds.
constexpr const char* json_gbnf = R"(
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= # a comment
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
)";

TEST_F(GrammarTest, GbnfDescribesJson) {
  const auto constraint = compile(Notation::gbnf, json_gbnf);
  for (const char* text : {"{}", R"({"a": [1, -2.5e3, {"b": null}], "c\u00e9\n": "d"})", "{\n}"}) {
    EXPECT_TRUE(takes(*constraint, text)) << text;
  }
  for (const char* text : {"", "[]", R"({"a": 01})", R"({"a" 1})", R"({"a": 1,})", "{} {}"}) {
    EXPECT_FALSE(takes(*constraint, text)) << text;
  }
}

TEST_F(GrammarTest, GbnfIsReadStrictly) {
  EXPECT_TRUE(takes(Notation::gbnf, "root ::= [^a-c] . {2} \"\\u00e9\"?", "xyzé"));
  EXPECT_TRUE(takes(Notation::gbnf, "root ::= a-1 | b\na-1 ::= \"x\"+\nb ::= [0-9]{2,}", "xx"));
  EXPECT_FALSE(takes(Notation::gbnf, "root ::= [0-9]{2,3}", "1"));
  EXPECT_TRUE(takes(Notation::gbnf, "root ::= \"<b>\" [^<>]+ \"</b>\"", "<b>x</b>"));
  EXPECT_THAT(refusal(Notation::gbnf, "root ::= item"), testing::HasSubstr("item"));
  EXPECT_THAT(refusal(Notation::gbnf, "a ::= \"b\""), testing::HasSubstr("root"));
  EXPECT_THAT(refusal(Notation::gbnf, "root ::= \"a"), testing::HasSubstr("line 1"));
  EXPECT_THAT(refusal(Notation::gbnf, "root ::= [b-a]"), testing::HasSubstr("order"));
}

TEST_F(GrammarTest, ReasoningIsFreeUntilItIsClosed) {
  const auto opened = compile(Notation::regex, "[0-9]+", Reasoning{.close = "</think>"});
  EXPECT_TRUE(takes(*opened, "Let me <think> 5.\n</think>\n\n12"));
  EXPECT_TRUE(takes(*opened, "</think>12"));
  EXPECT_FALSE(takes(*opened, "12"));
  EXPECT_FALSE(takes(*opened, "x</think>y"));
  const auto optional =
      compile(Notation::regex, "[0-9]+", Reasoning{.open = "<think>", .close = "</think>"});
  EXPECT_TRUE(takes(*optional, "12"));
  EXPECT_TRUE(takes(*optional, "<think>hm</think>12"));
  EXPECT_FALSE(takes(*optional, "hm</think>12"));
  const auto token = compile(Notation::regex, "[0-9]+", Reasoning{.close = "<|im_end|>"});
  EXPECT_TRUE(takes(*token, "hm <|im_start|<|im_end|>7", SpecialTokens::recognise));
}

TEST_F(GrammarTest, MasksSayWhatCommitTakes) {
  const auto& tokenizer = *tools()->tokenizer;
  const auto constraint = compile(Notation::regex, "[ab]{1,3}");
  const auto matcher = constraint->start();
  std::vector<std::uint32_t> words(static_cast<std::size_t>(matcher->mask_words()));
  matcher->mask(words);
  for (TokenId id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const std::string bytes = tokenizer.token_bytes(id);
    const bool fits = !tokenizer.is_special(id) && !bytes.empty() && bytes.size() <= 3 &&
                      bytes.find_first_not_of("ab") == std::string::npos;
    EXPECT_EQ((words[id / 32] >> (id % 32) & 1U) != 0, fits) << bytes;
  }
  EXPECT_FALSE(matcher->accepting());
  matcher->commit(*tokenizer.token_id("ab"));
  EXPECT_TRUE(matcher->accepting());
  matcher->mask(words);
  EXPECT_NE(words[0] & 1U, 0U);  // the end token
  matcher->commit(*tokenizer.token_id("a"));
  EXPECT_TRUE(matcher->stopped());
  matcher->rollback(1);
  EXPECT_FALSE(matcher->stopped());
  EXPECT_THROW(matcher->commit(*tokenizer.token_id("c")), std::runtime_error);
}

TEST_F(GrammarTest, ACompiledGrammarIsKept) {
  const auto first = compile(Notation::regex, "kept");
  EXPECT_EQ(first, compile(Notation::regex, "kept"));
  EXPECT_NE(first, compile(Notation::lark, "start: \"kept\""));
}

TEST_F(GrammarTest, ForcedTextIsTokenizedAsTheModelWould) {
  for (const char* family : {"smollm2", "llama2"}) {
    const auto tools = Tools::load(family);
    ASSERT_TRUE(tools) << family;
    const auto constraint = tools->compiler->compile(
        {Notation::regex, R"(\{"temperature": "celsius", "place": "[a-z]+"\})", {}});
    const auto matcher = constraint->start();
    std::vector<std::uint32_t> words(static_cast<std::size_t>(matcher->mask_words()));
    std::string text;
    for (int steps = 0; steps < 40; ++steps) {
      matcher->mask(words);
      std::vector<TokenId> allowed;
      for (std::size_t id = 0; id < words.size() * 32; ++id) {
        if (words[id / 32] >> (id % 32) & 1U) allowed.push_back(static_cast<TokenId>(id));
      }
      if (allowed.size() != 1) break;
      text += tools->tokenizer->token_bytes(allowed.front());
      matcher->commit(allowed.front());
    }
    EXPECT_TRUE(text.starts_with(R"({"temperature": "celsius", "place":)")) << family << text;
  }
}

}  // namespace
}  // namespace espalier::grammar
