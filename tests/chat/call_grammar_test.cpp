// Forced calls of every dialect: whatever a model writes within the grammar and a limit of tokens,
// the dialect's parser reads calls from it that fulfil the tools' schemas.

#include "chat/call_grammar.h"

#include <random>

#include <gtest/gtest.h>

#include "chat/response_parser.h"
#include "grammar/grammar_tools.h"

namespace espalier::chat {
namespace {

using Json = nlohmann::ordered_json;
using tokenizer::TokenId;

constexpr const char* offered = R"([
  {"type": "function", "function": {"name": "find_place", "parameters": {"type": "object",
    "properties": {"name": {"type": "string"}, "days": {"type": "integer"},
      "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
      "colour": {"$ref": "#/$defs/Colour"}, "kind": {"const": "place"},
      "order": {"anyOf": [{"type": "string", "enum": ["up", "down"]}, {"type": "null"}]},
      "exact": {"type": "boolean"}, "where": {"type": "object",
        "properties": {"city": {"type": "string"}}, "required": ["city"],
        "additionalProperties": false}},
    "required": ["name", "unit", "where", "colour", "kind", "order"],
    "additionalProperties": false,
    "$defs": {"Colour": {"type": "string", "enum": ["red", "dark green"]}}}}},
  {"type": "function", "function": {"name": "stop", "parameters": {"type": "object",
    "properties": {}, "additionalProperties": false}}}])";

/// A random text within the grammar that is complete after `limit` tokens.
std::string random_text(const grammar::Constraint& constraint, int limit, unsigned seed) {
  const auto matcher = constraint.start();
  matcher->limit(static_cast<std::size_t>(limit));
  std::minstd_rand random(seed);
  std::vector<std::uint32_t> words(static_cast<std::size_t>(matcher->mask_words()));
  std::string text;
  for (int i = 0; i < limit && !matcher->stopped(); ++i) {
    matcher->mask(words);
    std::vector<TokenId> ids;
    for (std::size_t id = 0; id < words.size() * 32; ++id) {
      if (words[id / 32] >> (id % 32) & 1U) ids.push_back(static_cast<TokenId>(id));
    }
    const TokenId id = ids.at(random() % ids.size());
    if (id == 0) break;
    matcher->commit(id);
    text += grammar::tools()->tokenizer->token_bytes(id);
  }
  EXPECT_TRUE(matcher->accepting()) << text;
  return text;
}

void check_call(const ToolCall& call, const std::string& text) {
  const Json arguments = Json::parse(call.arguments, nullptr, false);
  ASSERT_TRUE(arguments.is_object()) << call.arguments << " in " << text;
  if (call.name == "stop") {
    EXPECT_TRUE(arguments.empty()) << text;
    return;
  }
  ASSERT_EQ(call.name, "find_place") << text;
  for (const auto& [key, value] : arguments.items()) {
    if (key == "name") {
      EXPECT_TRUE(value.is_string()) << text;
    } else if (key == "days") {
      EXPECT_TRUE(value.is_number_integer()) << text;
    } else if (key == "exact") {
      EXPECT_TRUE(value.is_boolean()) << text;
    } else if (key == "unit") {
      EXPECT_TRUE(value == "celsius" || value == "fahrenheit") << text;
    } else if (key == "colour") {
      EXPECT_TRUE(value == "red" || value == "dark green") << text;
    } else if (key == "kind") {
      EXPECT_EQ(value, "place") << text;
    } else if (key == "order") {
      EXPECT_TRUE(value == "up" || value == "down" || value.is_null()) << text;
    } else {
      ASSERT_EQ(key, "where") << text;
      EXPECT_TRUE(value.is_object() && value.contains("city") && value["city"].is_string()) << text;
    }
  }
  for (const char* key : {"name", "unit", "where", "colour", "kind", "order"})
    EXPECT_TRUE(arguments.contains(key)) << text;
}

class CallGrammar : public testing::TestWithParam<Dialect> {};

TEST_P(CallGrammar, MakesValidCalls) {
  if (!grammar::tools()) GTEST_SKIP() << "the tokenizers of the fixtures are absent";
  const Dialect& dialect = GetParam();
  const ToolSet tools(offered);
  const auto constraint = grammar::tools()->compiler->compile(
      {.notation = grammar::Notation::lark,
       .text = call_grammar(
           dialect, tools, {},
           [&](std::string_view markup) { return grammar::tools()->compiler->reference(markup); }),
       .text_close = argument_close(dialect)});
  for (const unsigned seed : {1U, 2U}) {
    const std::string text = random_text(*constraint, 220, seed);
    const ParsedMessage parsed = parse_response({.dialect = &dialect, .tools = tools}, text);
    EXPECT_FALSE(parsed.tool_calls.empty()) << text;
    EXPECT_EQ(parsed.content, "") << text;
    for (const ToolCall& call : parsed.tool_calls) check_call(call, text);
  }
}

INSTANTIATE_TEST_SUITE_P(, CallGrammar, testing::ValuesIn(dialects()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace espalier::chat
