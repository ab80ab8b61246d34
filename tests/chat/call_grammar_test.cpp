// Forced calls of every dialect: whatever a model writes within the grammar and a limit of tokens,
// the dialect's parser reads calls from it that fulfil the tools' schemas.

#include "chat/call_grammar.h"

#include <map>
#include <random>
#include <regex>

#include <gtest/gtest.h>

#include "base/error.h"
#include "chat/response_parser.h"
#include "grammar/grammar_tools.h"

namespace espalier::chat {
namespace {

using Json = nlohmann::ordered_json;
using tokenizer::TokenId;

constexpr const char* offered = R"([
  {"type": "function", "function": {"name": "find_place", "parameters": {"type": "object",
    "properties": {"name": {"type": "string", "minLength": 1},
      "days": {"type": "integer", "minimum": 1, "maximum": 9},
      "note": {"type": ["string", "null"], "maxLength": 9}, "exact": {"type": "boolean"},
      "where": {"type": "object", "properties": {"city": {"type": "string"},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/Colour"}}},
        "required": ["city"], "additionalProperties": false}},
    "required": ["name", "note", "where"], "additionalProperties": false,
    "$defs": {"Colour": {"type": "string", "enum": ["red", "dark green"]}}}}},
  {"type": "function", "function": {"name": "find_thing", "parameters": {"type": "object",
    "properties": {"code": {"type": "string", "pattern": "^[a-z]{2,5}-[0-9]{3}$"},
      "when": {"type": "string", "format": "date"},
      "size": {"anyOf": [{"type": "integer", "maximum": 5},
        {"type": "string", "pattern": "^[0-9x]+$"}]},
      "colour": {"$ref": "#/$defs/Colour"}, "kind": {"const": "place"},
      "order": {"anyOf": [{"type": "string", "enum": ["up", "down"]}, {"type": "null"}]}},
    "required": ["code", "when", "size", "colour", "order"], "additionalProperties": false,
    "$defs": {"Colour": {"type": "string", "enum": ["red", "dark green"]}}}}},
  {"type": "function", "function": {"name": "stop", "parameters": {"type": "object",
    "properties": {}, "additionalProperties": false}}}])";

const std::map<std::string, std::vector<std::string>> required = {
    {"find_place", {"name", "note", "where"}},
    {"find_thing", {"code", "when", "size", "colour", "order"}}};

std::shared_ptr<const grammar::Constraint> compile(const Dialect& dialect, const ToolSet& tools,
                                                   const std::string& only = {}) {
  const auto reference = [](std::string_view markup) {
    return grammar::tools()->compiler->reference(markup);
  };
  return grammar::tools()->compiler->compile(
      {.notation = grammar::Notation::lark,
       .text = call_grammar(dialect, tools, {.only = only}, reference),
       .text_close = argument_close(dialect)});
}

bool is_set(const std::vector<std::uint32_t>& words, std::size_t id) {
  return (words[id / 32] >> (id % 32) & 1U) != 0;
}

/// A random text within the grammar that is complete after `limit` tokens.
std::string random_text(const grammar::Constraint& constraint, int limit, unsigned seed) {
  const auto matcher = constraint.start();
  matcher->limit(static_cast<std::size_t>(limit));
  std::minstd_rand random(seed);
  std::vector<std::uint32_t> words(static_cast<std::size_t>(matcher->mask_words()));
  std::string text;
  for (int i = 0; i < limit && !matcher->stopped(); ++i) {
    matcher->mask(words);
    std::size_t id = random() % (words.size() * 32);
    for (std::size_t looked = 0; looked < words.size() * 32 && !is_set(words, id); ++looked) {
      id = (id + 1) % (words.size() * 32);
    }
    if (id == 0) break;
    matcher->commit(static_cast<TokenId>(id));
    text += grammar::tools()->tokenizer->token_bytes(static_cast<TokenId>(id));
  }
  EXPECT_TRUE(matcher->accepting()) << text;
  return text;
}

bool matches(const Json& value, const char* expression) {
  return value.is_string() && std::regex_match(value.get<std::string>(), std::regex(expression));
}

bool is_size(const Json& value) {
  return (value.is_number_integer() && value <= 5) || matches(value, "[0-9x]+");
}

bool is_place(const Json& value) {
  if (!value.is_object() || !value.contains("city") || !value["city"].is_string()) return false;
  for (const Json& tag : value.value("tags", Json::array())) {
    if (tag != "red" && tag != "dark green") return false;
  }
  return value.size() <= 2;
}

/// What the schema says, in other words.
bool is_valid(const std::string& key, const Json& value) {
  if (key == "name") return value.is_string() && value != "";
  if (key == "days") return value.is_number_integer() && value >= 1 && value <= 9;
  if (key == "code") return matches(value, "[a-z]{2,5}-[0-9]{3}");
  if (key == "when") return matches(value, "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])");
  if (key == "note") return value.is_null() || value.is_string();
  if (key == "size") return is_size(value);
  if (key == "colour") return value == "red" || value == "dark green";
  if (key == "kind") return value == "place";
  if (key == "order") return value == "up" || value == "down" || value.is_null();
  if (key == "exact") return value.is_boolean();
  return key == "where" && is_place(value);
}

void check_call(const ToolCall& call, const std::string& text) {
  const Json arguments = Json::parse(call.arguments, nullptr, false);
  ASSERT_TRUE(arguments.is_object()) << call.arguments << " in " << text;
  ASSERT_TRUE(required.contains(call.name)) << text;
  for (const auto& [key, value] : arguments.items()) {
    EXPECT_TRUE(is_valid(key, value)) << key << " is " << value << " in " << text;
  }
  for (const std::string& key : required.at(call.name)) {
    EXPECT_TRUE(arguments.contains(key)) << key << " is missing in " << text;
  }
}

class CallGrammar : public testing::TestWithParam<Dialect> {};

TEST_P(CallGrammar, MakesValidCalls) {
  if (!grammar::tools()) GTEST_SKIP() << "the tokenizers of the fixtures are absent";
  const Dialect& dialect = GetParam();
  const ToolSet tools(offered);
  // Spelled in this vocabulary, the marks of some dialects are many tokens.
  const int limit = dialect.name.ends_with("_dsml") ? 360 : 180;
  for (const char* only : {"find_place", "find_thing"}) {
    // Where arguments are JSON, one function shows as much as two.
    if (argument_close(dialect).empty() && only == std::string_view("find_place")) continue;
    const auto constraint = compile(dialect, tools, only);
    const std::string text = random_text(*constraint, limit, 7);
    const ParsedMessage parsed = parse_response({.dialect = &dialect, .tools = tools}, text);
    EXPECT_FALSE(parsed.tool_calls.empty()) << text;
    EXPECT_EQ(parsed.content, "") << text;
    for (const ToolCall& call : parsed.tool_calls) check_call(call, text);
  }
}

INSTANTIATE_TEST_SUITE_P(, CallGrammar, testing::ValuesIn(dialects()),
                         [](const auto& info) { return info.param.name; });

ToolSet tools_with(const std::string& parameter) {
  return ToolSet(R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
    "properties": {"x": )" +
                 parameter + R"(}, "required": ["x"]}}}])");
}

bool accepts(const grammar::Constraint& constraint, const std::string& text) {
  const auto matcher = constraint.start();
  std::vector<std::uint32_t> words(static_cast<std::size_t>(matcher->mask_words()));
  for (const TokenId id :
       grammar::tools()->tokenizer->encode(text, tokenizer::SpecialTokens::literal)) {
    matcher->mask(words);
    if (!is_set(words, static_cast<std::size_t>(id))) return false;
    matcher->commit(id);
  }
  return matcher->accepting();
}

/// A value that the parser would read otherwise is not taken; what it reads as it is, is.
struct ValueCase {
  const char* dialect;
  const char* schema;
  const char* value;
  const char* read;  // null: not taken
};

class CallValue : public testing::TestWithParam<ValueCase> {};

TEST_P(CallValue, IsTakenAsItIsRead) {
  if (!grammar::tools()) GTEST_SKIP() << "the tokenizers of the fixtures are absent";
  const auto& [name, schema, value, read] = GetParam();
  const bool qwen = std::string_view(name) == "qwen3_coder_xml";
  const std::string before = qwen ? "<tool_call>\n<function=f>\n<parameter=x>\n"
                                  : "<seed:tool_call>\n<function=f>\n<parameter=x>";
  const std::string after = qwen ? "\n</parameter>\n</function>\n</tool_call>"
                                 : "</parameter>\n</function>\n</seed:tool_call>";
  const std::string text = before + value + after;
  const ToolSet tools = tools_with(schema);
  const Dialect* dialect = find_dialect(name);
  EXPECT_EQ(accepts(*compile(*dialect, tools), text), read != nullptr) << text;
  if (read == nullptr) return;
  const ParsedMessage parsed = parse_response({.dialect = dialect, .tools = tools}, text);
  ASSERT_EQ(parsed.tool_calls.size(), 1U);
  EXPECT_EQ(Json::parse(parsed.tool_calls[0].arguments)["x"], Json::parse(read));
}

constexpr const char* xml = "qwen3_coder_xml";
constexpr const char* nullable = R"({"type": ["string", "null"]})";
constexpr const char* number_or_text =
    R"({"anyOf": [{"type": "number", "maximum": 3}, {"type": "string"}]})";
constexpr const char* object = R"({"type": "object"})";

INSTANTIATE_TEST_SUITE_P(
    , CallValue,
    testing::Values(
        ValueCase{xml, nullable, "None of them", R"("None of them")"},
        ValueCase{xml, nullable, "null", "null"}, ValueCase{xml, nullable, "NULL", nullptr},
        ValueCase{xml, R"({"type": "string"})", "null", R"("null")"},
        ValueCase{xml, R"({"type": "string"})", "\na\n", R"("\na\n")"},
        ValueCase{xml, R"({"type": "string"})", "a</parameter>b", nullptr},
        ValueCase{xml, R"({"type": "string"})", "a\n<parameter=b", nullptr},
        ValueCase{xml, R"({"type": "string"})", "<![CDATA[a]]>", nullptr},
        ValueCase{xml, number_or_text, "4", nullptr}, ValueCase{xml, number_or_text, "2.5", "2.5"},
        ValueCase{xml, number_or_text, "four", R"("four")"},
        ValueCase{xml, R"({"enum": ["1", 2]})", "2", "2"},
        ValueCase{xml, R"({"enum": ["1", 2]})", "1", nullptr},
        ValueCase{xml, "{}", "{\"a\":1}", "{\"a\":1}"}, ValueCase{xml, "{}", "{a", nullptr},
        ValueCase{xml, object, "{\"a\":\"</parameter>\"}", "{\"a\":\"</parameter>\"}"},
        ValueCase{xml, R"({"type": "string", "pattern": "^a|b$"})", "xb", R"("xb")"},
        ValueCase{xml, R"({"type": "string", "pattern": "^a|b$"})", "xbx", nullptr},
        ValueCase{xml, R"({"type": "string", "format": "ipv4"})", "1.2.3.256", nullptr},
        ValueCase{"seed_oss_xml", R"({"type": "string"})", "a\nb", R"("a\nb")"},
        ValueCase{"seed_oss_xml", R"({"type": "string"})", "\na", nullptr}));

TEST(CallGrammarRefusal, NamesTheKeyword) {
  const auto reference = [](std::string_view markup) { return lark_string(markup); };
  const auto refusal = [&reference](const std::string& schema) -> std::string {
    const ToolSet tools(R"([{"type": "function", "function": {"name": "f", "parameters": )" +
                        schema + "}}]");
    try {
      call_grammar(*find_dialect("qwen3_coder_xml"), tools, {}, reference);
    } catch (const base::RequestError& error) {
      return error.what();
    }
    return "";
  };
  for (const char* keyword : {"minProperties", "patternProperties", "dependentRequired", "anyOf"}) {
    const std::string schema = std::string(R"({"type": "object", ")") + keyword + R"(": {"a": 1}})";
    EXPECT_NE(refusal(schema).find(keyword), std::string::npos) << keyword;
  }
  EXPECT_NE(refusal(R"({"properties": {"x": {"not": {"type": "null"}}}})").find("'not'"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"properties": {"a>b": {"type": "string"}}})").find("a>b"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"type": "string"})").find("'type'"), std::string::npos);
}

}  // namespace
}  // namespace espalier::chat
