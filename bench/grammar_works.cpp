#include "grammar_works.h"

#include <nlohmann/json.hpp>

#include "chat/call_grammar.h"
#include "chat/dialect.h"
#include "chat/tool_set.h"

namespace espalier::bench {
namespace {

using grammar::Notation;
using Json = nlohmann::ordered_json;

constexpr const char* ten_fields =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":40},
      "age":{"type":"integer","minimum":0,"maximum":130},"height":{"type":"number"},
      "married":{"type":"boolean"},"born":{"type":"string","format":"date"},
      "email":{"type":"string","format":"email"},"colour":{"enum":["red","green","blue"]},
      "tags":{"type":"array","items":{"type":"string","maxLength":20},"maxItems":5},
      "address":{"type":"object","properties":{"city":{"type":"string","maxLength":40}},
      "required":["city"],"additionalProperties":false},"notes":{"type":"string"}},
      "required":["name","age","height","married","born","email","colour","tags","address",
      "notes"],"additionalProperties":false})";

constexpr const char* person =
    R"({"name": "Ada Lovelace", "age": 36, "height": 1.65, "married": true, "born": "1815-12-10",
 "email": "ada@example.org", "colour": "green", "tags": ["analysis", "engines", "poetry"],
 "address": {"city": "London"}, "notes": "She wrote \"notes\" on Menabrea's memoir, longer than the memoir."})";

constexpr const char* any_object_text =
    R"({"title": "A history of machines", "year": 1843, "parts": [{"no": 1, "text": "The engine"},
 {"no": 2, "text": "Its store à la Jacquard", "pages": [1, 2.5, null, true]}], "empty": {}})";

constexpr const char* tree =
    R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{
      "value":{"type":"string","pattern":"^[a-z]{1,12}$"},"children":{"type":"array",
      "items":{"$ref":"#/$defs/node"}}},"required":["value","children"]}}})";

constexpr const char* tree_text =
    R"({"value": "root", "children": [{"value": "left", "children": [{"value": "leaf", "children": []}]},
 {"value": "right", "children": [], "weight": 12, "label": "of the right"}]})";

constexpr const char* order =
    R"({"type":"object","properties":{"orders":{"type":"array","minItems":1,"items":{"type":"object",
      "properties":{"id":{"type":"string","pattern":"^[A-Z]{2}-[0-9]{6}$"},
      "customer":{"type":"object","properties":{"name":{"type":"string","minLength":1},
      "contact":{"anyOf":[{"type":"null"},{"type":"object","properties":{"phone":{"type":"string",
      "pattern":"^\\+[0-9 ]{6,16}$"},"note":{"type":"string"}},"required":["phone"],
      "additionalProperties":false}]}},"required":["name","contact"],"additionalProperties":false},
      "lines":{"type":"array","items":{"type":"object","properties":{"article":{"type":"string"},
      "count":{"type":"integer","minimum":1},"price":{"type":"number","minimum":0},
      "state":{"enum":["open","packed","sent","returned"]}},
      "required":["article","count","price","state"],"additionalProperties":false}}},
      "required":["id","customer","lines"],"additionalProperties":false}}},"required":["orders"],
      "additionalProperties":false})";

constexpr const char* order_text =
    R"({"orders": [{"id": "AB-123456", "customer": {"name": "J. Doe", "contact": {"phone": "+49 30 1234567",
 "note": "mornings"}}, "lines": [{"article": "hinge, brass", "count": 12, "price": 3.5, "state": "packed"},
 {"article": "screw", "count": 100, "price": 0.02, "state": "open"}]}, {"id": "AB-123457",
 "customer": {"name": "Mary", "contact": null}, "lines": []}]})";

constexpr const char* long_string =
    R"({"type":"object","properties":{"text":{"type":"string","maxLength":5000}},
      "required":["text"],"additionalProperties":false})";

constexpr const char* short_strings =
    R"({"type":"array","items":{"type":"string","minLength":2,"maxLength":12},"minItems":3})";

constexpr const char* prose =
    "It was a bright cold day in April, and the clocks were striking; nobody had counted along. "
    "Whoever asks \\\"what time is it?\\\" hears 13:00 from one and 1 p.m. from another.\\n"
    "Il fait froid, naturellement: -3 °C le matin, 8 degrés à midi. ";

constexpr const char* expression =
    R"((GET|POST|PUT|DELETE) /api/v[12]/[a-z_]+(/[0-9]{1,8})?(\?[a-z]+=[^ &]*(&[a-z]+=[^ &]*)*)? HTTP/1\.[01])";

constexpr const char* offered = R"([
  {"type": "function", "function": {"name": "write_file", "parameters": {"type": "object",
    "properties": {"path": {"type": "string", "minLength": 1}, "content": {"type": "string"},
      "mode": {"type": "integer"}, "append": {"type": "boolean"}},
    "required": ["path", "content"], "additionalProperties": false}}},
  {"type": "function", "function": {"name": "search", "parameters": {"type": "object",
    "properties": {"query": {"type": "string", "maxLength": 80},
      "where": {"enum": ["code", "docs"]}, "filter": {"type": "object",
        "properties": {"language": {"type": "string"}}}},
    "required": ["query", "where"], "additionalProperties": false}}}])";

constexpr const char* source =
    "#include <cstdio>\n\nint main(int argc, char** argv) {\n  for (int i = 0; i < argc; ++i) {\n"
    "    std::printf(\"%d: %s\\n\", i, argv[i]);\n  }\n  return 0;\n}";

std::string repeated(std::string_view text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

/// One of 400 names of 1 to 3 words.
Json names() {
  static constexpr const char* words[] = {"north", "blue", "Saint-", "river", "old ",
                                          "gate",  "mill", "upper ", "field", "stone"};
  Json list = Json::array();
  for (int i = 0; i < 400; ++i) {
    std::string name = words[i % 10];
    if (i >= 10) name += words[i / 10 % 10];
    if (i >= 100) name += words[i / 100];
    list.push_back(name);
  }
  return list;
}

/// Forced calls in a dialect, which writes `source` as a string of JSON or as it is.
GrammarWork calls(grammar::Compiler& compiler, const char* dialect, std::string document) {
  const chat::Dialect& found = *chat::find_dialect(dialect);
  const chat::ToolSet tools(offered);
  const auto reference = [&](std::string_view markup) { return compiler.reference(markup); };
  return {std::string("calls, ") + dialect,
          {.notation = Notation::lark,
           .text = chat::call_grammar(found, tools, {}, reference),
           .text_close = chat::argument_close(found)},
          std::move(document)};
}

}  // namespace

std::vector<GrammarWork> grammar_works(grammar::Compiler& compiler) {
  const auto schema = [](const char* name, std::string text, std::string document) {
    return GrammarWork{name, {Notation::json_schema, std::move(text), {}, {}}, std::move(document)};
  };
  const std::string code = Json(source).dump();
  std::vector<GrammarWork> works = {
      schema("ten fields", ten_fields, person),
      schema("any object", std::string(grammar::any_object_schema), any_object_text),
      schema("nested", order, order_text),
      schema("recursion", tree, tree_text),
      schema("long string", long_string, "{\"text\": \"" + repeated(prose, 8) + "\"}"),
      schema("short strings", short_strings, R"(["abc", "hello, world", "naïve", "x y z"])"),
      schema("400 names", Json{{"type", "array"}, {"items", {{"enum", names()}}}}.dump(),
             R"(["north", "rivergateblue", "old stone", "upper Saint-"])"),
      {"regex",
       {Notation::regex, expression, {}, {}},
       "GET /api/v1/users/1234?q=a%20b&x=1 HTTP/1.1"},
      {"reasoning, ten fields",
       {Notation::json_schema, ten_fields, grammar::Reasoning{.open = {}, .close = "</think>"}, {}},
       std::string("First the name, then \"age\" < 40.\n</think>\n\n") + person},
      calls(compiler, "hermes_qwen_json",
            "<tool_call>\n{\"name\": \"write_file\", \"arguments\": {\"path\": \"a.cpp\", "
            "\"content\": " +
                code + "}}\n</tool_call>"),
      calls(
          compiler, "qwen3_coder_xml",
          std::string("<tool_call>\n<function=write_file>\n<parameter=path>\na.cpp\n</parameter>\n"
                      "<parameter=content>\n") +
              source + "\n</parameter>\n</function>\n</tool_call>"),
      calls(compiler, "glm45_xml",
            std::string(
                "<tool_call>write_file\n<arg_key>path</arg_key>\n<arg_value>a.cpp</arg_value>\n"
                "<arg_key>content</arg_key>\n<arg_value>") +
                source + "</arg_value>\n</tool_call>"),
      calls(compiler, "pythonic", "[search(query=\"int main\", where=\"code\")]"),
  };
  return works;
}

}  // namespace espalier::bench
