// Every case of the tool-call fixtures, whole and cut into pieces.

#include <fstream>
#include <map>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "chat/response_parser.h"
#include "support/text_cases.h"

namespace espalier::chat {
namespace {

using Json = nlohmann::ordered_json;

std::string trim(std::string text) {
  const auto first = text.find_first_not_of(" \n\t\r");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \n\t\r") - first + 1);
}

std::string text_of(const Json& value) {
  return value.is_string() ? trim(value.get<std::string>()) : std::string();
}

std::string without_space(const std::string& text) {
  std::string result;
  for (const char byte : text) {
    if (std::string_view(" \n\t\r").find(byte) == std::string_view::npos) result += byte;
  }
  return result;
}

ParsedMessage parse_pieces(const Dialect& dialect, const ToolSet& tools, const Json& entry,
                           std::size_t piece) {
  ResponseParser parser(
      {.dialect = &dialect, .prompt_end = entry.value("prompt_ends_with", ""), .tools = tools});
  const std::string raw = entry["raw"];
  ParsedMessage message;
  for (std::size_t i = 0; i < raw.size(); i += piece) {
    apply_events(parser.feed(std::string_view(raw).substr(i, piece)), message);
  }
  apply_events(parser.finish(), message);
  return message;
}

bool same_calls(const std::vector<ToolCall>& calls, const Json& expected, std::size_t count) {
  if (calls.size() < count || expected.size() != count) return false;
  for (std::size_t i = 0; i < count; ++i) {
    const Json arguments = Json::parse(calls[i].arguments, nullptr, false);
    if (calls[i].name != expected[i]["name"].get<std::string>() ||
        arguments != expected[i]["arguments"])
      return false;
  }
  return true;
}

bool matches(const ParsedMessage& message, const Json& entry, const Json& expected) {
  const std::size_t count = expected["tool_calls"].size();
  const bool truncated = entry.value("truncated", false);
  const bool malformed = entry.value("malformed", false);
  if (!same_calls(message.tool_calls, expected["tool_calls"], count)) return false;
  const std::size_t most = count + (entry.contains("incomplete_call") || malformed ? 1 : 0);
  if (message.tool_calls.size() > most) return false;
  if (message.tool_calls.size() > count) {  // one without complete arguments
    const ToolCall& last = message.tool_calls.back();
    if (Json::accept(last.arguments)) return false;
    if (!malformed && last.name != entry["incomplete_call"].get<std::string>()) return false;
    if (!trim(message.content).empty() && !malformed) return false;
  }
  const bool joined = entry.value("join_any", false);
  const std::string reasoning = trim(message.reasoning);
  const std::string wanted = text_of(expected["reasoning"]);
  if (joined ? without_space(reasoning) != without_space(wanted) : reasoning != wanted)
    return false;
  return truncated || malformed || trim(message.content) == text_of(expected["content"]);
}

bool accepted(const ParsedMessage& message, const Json& entry) {
  if (matches(message, entry, entry["expected"])) return true;
  if (!entry.contains("also_accept")) return false;
  for (const Json& other : entry["also_accept"]) {
    if (matches(message, entry, other)) return true;
  }
  return false;
}

std::string describe(const ParsedMessage& message) {
  Json json = {{"content", message.content}, {"reasoning", message.reasoning}};
  for (const ToolCall& call : message.tool_calls) {
    json["calls"].push_back({call.id, call.name, call.arguments});
  }
  return json.dump();
}

std::vector<std::filesystem::path> fixture_files() {
  std::vector<std::filesystem::path> files;
  const auto shared = tests::shared_folder();
  if (!shared) return files;
  const auto folder = *shared / "fixtures/toolcalls";
  if (!exists(folder)) return files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  return files;
}

/// The digits of every number in `json`, in order.
std::vector<std::string> numbers(const std::string& json) {
  std::vector<std::string> found;
  bool string = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '\\') {
      ++i;
    } else if (json[i] == '"') {
      string = !string;
    } else if (!string && (json[i] == '-' || std::isdigit(static_cast<unsigned char>(json[i])))) {
      const auto end = json.find_first_not_of("+-.0123456789eE", i);
      found.push_back(json.substr(i, end - i));
      i = end - 1;
    }
  }
  return found;
}

TEST(ToolCalls, FixturesWholeAndInPieces) {
  const auto files = fixture_files();
  if (files.empty()) GTEST_SKIP() << "no tool-call fixtures; set ESPALIER_SHARED";
  for (const auto& path : files) {
    std::ifstream file(path);
    const Json fixture = Json::parse(file);
    const Dialect* dialect = find_dialect(fixture["dialect"].get<std::string>());
    ASSERT_NE(dialect, nullptr) << fixture["dialect"];
    const ToolSet tools(fixture["tools"].dump());
    for (const Json& entry : fixture["cases"]) {
      for (const std::size_t piece :
           {std::size_t{1} << 30, std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{7}}) {
        const ParsedMessage message = parse_pieces(*dialect, tools, entry, piece);
        EXPECT_TRUE(accepted(message, entry))
            << dialect->name << " " << entry["name"] << " in pieces of " << piece << ": "
            << entry["raw"] << "\n  gave " << describe(message);
        if (entry.value("exact_numbers", false)) {
          EXPECT_EQ(numbers(message.tool_calls.at(0).arguments), numbers(entry["raw"]))
              << dialect->name;
        }
        if (!entry.contains("call_ids")) continue;
        std::vector<std::string> ids;
        for (const ToolCall& call : message.tool_calls) ids.push_back(call.id);
        EXPECT_EQ(Json(ids), entry["call_ids"]) << dialect->name << " " << entry["name"];
      }
    }
  }
}

TEST(ToolCalls, EveryByteSplitGivesTheWholesResult) {
  const auto files = fixture_files();
  if (files.empty()) GTEST_SKIP() << "no tool-call fixtures; set ESPALIER_SHARED";
  for (const auto& path : files) {
    std::ifstream file(path);
    const Json fixture = Json::parse(file);
    const Dialect* dialect = find_dialect(fixture["dialect"].get<std::string>());
    const ToolSet tools(fixture["tools"].dump());
    for (const Json& entry : fixture["cases"]) {
      const std::string raw = entry["raw"];
      if (raw.size() > 110) continue;
      const std::string whole = describe(parse_pieces(*dialect, tools, entry, raw.size() + 1));
      for (std::size_t cut = 1; cut < raw.size(); ++cut) {
        ResponseParser parser({.dialect = dialect,
                               .prompt_end = entry.value("prompt_ends_with", ""),
                               .tools = tools});
        ParsedMessage message;
        apply_events(parser.feed(std::string_view(raw).substr(0, cut)), message);
        apply_events(parser.feed(std::string_view(raw).substr(cut)), message);
        apply_events(parser.finish(), message);
        ASSERT_EQ(describe(message), whole) << dialect->name << " cut at " << cut << ": " << raw;
      }
    }
  }
}

struct DirtCase {
  const char* name;
  const char* dialect;
  const char* raw;
  const char* content;
  std::vector<std::pair<std::string, std::string>> calls;  // name, arguments
};

constexpr const char* dirt_tools = R"([
  {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties":
    {"place": {"type": "string"}, "days": {"type": "integer"}, "deep": {"type": "boolean"},
     "note": {"type": ["string", "null"]}, "tags": {"type": "array"}, "any": {}}}}}])";

const std::vector<DirtCase> dirt_cases = {
    {"no closing tag at the end",
     "hermes_qwen_json",
     "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"place\": \"Rome\"}}",
     "",
     {{"look", R"({"place": "Rome"})"}}},
    {"a brace too few",
     "hermes_qwen_json",
     "<tool_call>{\"name\": \"look\", \"arguments\": {\"days\": 1}</tool_call> ok",
     "ok",
     {{"look", R"({"days": 1})"}}},
    {"arguments as a string",
     "hermes_qwen_json",
     R"(<tool_call>{"name": "look", "arguments": "{\"place\": \"R\u00f6m \\\"x\\\"\"}"}</tool_call>)",
     "",
     {{"look", R"({"place": "Röm \"x\""})"}}},
    {"arguments before the name",
     "hermes_qwen_json",
     R"(<tool_call>{"arguments": {"days": 2}, "name": "look"}</tool_call>)",
     "",
     {{"look", R"({"days": 2})"}}},
    {"single quotes and Python words",
     "hermes_qwen_json",
     R"(<tool_call>{'name': 'look', 'arguments': {'place': 'it\'s', 'deep': True, 'note': None,}}</tool_call>)",
     "",
     {{"look", R"({"place": "it's", "deep": true, "note": null})"}}},
    {"a raw line end in a string",
     "hermes_qwen_json",
     "<tool_call>{\"name\": \"look\", \"arguments\": {\"place\": \"a\nb\"}}</tool_call>",
     "",
     {{"look", R"({"place": "a\nb"})"}}},
    {"a list of calls in one tag",
     "hermes_qwen_json",
     R"(<tool_call>[{"name": "look", "arguments": {}}, {"name": "b", "arguments": {}}]</tool_call>)",
     "",
     {{"look", "{}"}, {"b", "{}"}}},
    {"the API's own shape",
     "hermes_qwen_json",
     R"(<tool_call>{"type": "function", "function": {"name": "look", "arguments": {}}}</tool_call>)",
     "",
     {{"look", "{}"}}},
    {"a fenced object",
     "hermes_qwen_json",
     "<tool_call>\n```json\n{\"name\": \"look\", \"arguments\": {}}\n```\n</tool_call>",
     "",
     {{"look", "{}"}}},
    {"tags around no call",
     "hermes_qwen_json",
     "<tool_call>look at this</tool_call>",
     "<tool_call>look at this</tool_call>",
     {}},
    {"text around and between",
     "hermes_qwen_json",
     "One. <tool_call>{\"name\": \"look\", \"arguments\": {}}</tool_call> Two.",
     "One. Two.",
     {{"look", "{}"}}},
    {"braces and tags in strings",
     "hermes_qwen_json",
     R"(<tool_call>{"name": "look", "arguments": {"place": "}{ </tool_call> ]["}}</tool_call>)",
     "",
     {{"look", R"({"place": "}{ </tool_call> ]["})"}}},
    {"values by their types",
     "qwen3_coder_xml",
     "<function=look><parameter=place>12</parameter><parameter=days>12</parameter>"
     "<parameter=note>null</parameter><parameter=tags>['a', 1, None]</parameter>"
     "<parameter=any>{\"x\": 1.50}</parameter></function>",
     "",
     {{"look",
       R"({"place": "12", "days": 12, "note": null, "tags": ["a", 1, null], "any": {"x": 1.50}})"}}},
    {"a parameter's closing tag is missing",
     "qwen3_coder_xml",
     "<tool_call>\n<function=look>\n<parameter=place>\nRome\n<parameter=days>\n3\n</parameter>\n"
     "</function>\n</tool_call>",
     "",
     {{"look", R"({"place": "Rome", "days": 3})"}}},
    {"JSON where tags belong",
     "glm45_xml",
     R"(<tool_call>{"name": "look", "arguments": {"days": 1}}</tool_call>)",
     "",
     {{"look", R"({"days": 1})"}}},
    {"no line ends",
     "glm45_xml",
     "<tool_call>look<arg_key>days</arg_key><arg_value>3</arg_value></tool_call>",
     "",
     {{"look", R"({"days": 3})"}}},
    {"double quotes, tuples, positions",
     "pythonic",
     R"([look("Rome", days=-3, tags=('a', "b\'"), deep=False)])",
     "",
     {{"look", R"({"place": "Rome", "days": -3, "tags": ["a", "b'"], "deep": false})"}}},
    {"a list that is no call", "pythonic", "[1, 2] and [a](b)", "[1, 2] and [a](b)", {}},
    {"a triple-quoted string",
     "gemma3_tool_code",
     "```tool_code\nprint(look(place=\"\"\"a \"b\"\nc\"\"\"))\n```",
     "",
     {{"look", R"({"place": "a \"b\"\nc"})"}}},
    {"nested values",
     "gemma4",
     "<|tool_call>call:look{any:{a:[1,<|\"|>x<|\"|>,true]},days:2}<tool_call|>",
     "",
     {{"look", R"({"any": {"a": [1, "x", true]}, "days": 2})"}}},
    {"two objects on lines",
     "llama3_json",
     "{\"name\": \"look\", \"parameters\": {}}\n{\"name\": \"b\", \"parameters\": {}}",
     "",
     {{"look", "{}"}, {"b", "{}"}}},
    {"an object with a name alone",
     "llama3_json",
     "{\"name\": \"Ada\", \"born\": 1815}",
     "{\"name\": \"Ada\", \"born\": 1815}",
     {}},
    {"recipient before the channel",
     "gptoss_harmony",
     " to=functions.look<|channel|>commentary json<|message|>{\"days\": 1}<|call|>",
     "",
     {{"look", R"({"days": 1})"}}},
    {"an id before the arguments",
     "mistral_v11_args",
     "[TOOL_CALLS]look[CALL_ID]abc123def[ARGS]{\"days\": 1}",
     "",
     {{"look", R"({"days": 1})"}}},
    {"a list of calls between marks",
     "lfm2_pythonic",
     "<|tool_call_start|>[look(place=\"Rome\")]<|tool_call_end|>Looking.",
     "Looking.",
     {{"look", R"({"place": "Rome"})"}}},
    {"an attribute says the type",
     "deepseek_v32_dsml",
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"look\">\n<｜DSML｜parameter name=\"any\" "
     "string=\"true\">5</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
     "string=\"false\">5</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     "",
     {{"look", R"({"any": "5", "days": 5})"}}},
    {"the section of DeepSeek V4",
     "deepseek_v4_dsml",
     "Let me see.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"look\">\n<｜DSML｜parameter "
     "name=\"any\" string=\"true\">5</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke "
     "name=\"b\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
     "Let me see.",
     {{"look", R"({"any": "5"})"}, {"b", "{}"}}},
    {"a name before a separator",
     "hunyuan3_xml",
     "Looking.<tool_calls>\n<tool_call>look<tool_sep>\n<arg_key>place</arg_key>\n"
     "<arg_value>Rome\n<x></arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n"
     "</tool_call>\n<tool_call>b<tool_sep>\n</tool_call>\n</tool_calls>",
     "Looking.",
     {{"look", R"({"place": "Rome\n<x>", "days": 3})"}, {"b", "{}"}}},
    {"calls on lines in tags",
     "olmo3_pythonic",
     "I look.\n<function_calls>look(place=\"Rome\", days=3)\nb()</function_calls>",
     "I look.",
     {{"look", R"({"place": "Rome", "days": 3})"}, {"b", "{}"}}},
    {"no answer without a tool",
     "command_r_action",
     "Action: ```json\n[{\"tool_name\": \"directly_answer\", \"parameters\": {}}]\n```",
     "",
     {}},
};

TEST(ToolCalls, WhatModelsWriteInPractice) {
  for (const DirtCase& entry : dirt_cases) {
    for (const std::size_t piece : {std::size_t{1} << 30, std::size_t{1}}) {
      const Dialect* dialect = find_dialect(entry.dialect);
      ASSERT_NE(dialect, nullptr) << entry.dialect;
      const ParsedMessage message =
          parse_pieces(*dialect, ToolSet(dirt_tools), Json{{"raw", entry.raw}}, piece);
      std::vector<std::pair<std::string, std::string>> calls;
      for (const ToolCall& call : message.tool_calls) calls.emplace_back(call.name, call.arguments);
      EXPECT_EQ(calls, entry.calls) << entry.name << ": " << describe(message);
      EXPECT_EQ(trim(message.content), entry.content) << entry.name;
    }
  }
}

TEST(ToolCalls, NameComesFirstAndArgumentsAsTheyAreWritten) {
  ResponseParser parser({.dialect = find_dialect("hermes_qwen_json")});
  parser.feed("<tool_call>\n{\"name\": \"f\", \"arg");
  auto events = parser.feed("uments\": {\"text\": \"ab");
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].kind, MessageEventKind::call_begin);
  EXPECT_EQ(events[0].text, "f");
  EXPECT_EQ(events[1].text, "{\"text\": \"ab");
  events = parser.feed("c");
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].text, "c");
}

TEST(ToolCalls, IdsAreTheModelsOwn) {
  const auto ids = [](const char* dialect, const char* raw) {
    std::vector<std::string> found;
    for (const ToolCall& call :
         parse_response({.dialect = find_dialect(dialect)}, raw).tool_calls) {
      found.push_back(call.id);
    }
    return found;
  };
  using Ids = std::vector<std::string>;
  EXPECT_EQ(
      ids("mistral_v3_json", R"([TOOL_CALLS] [{"name": "a", "arguments": {}, "id": "abcdefgh0"}])"),
      Ids{"abcdefgh0"});
  EXPECT_EQ(ids("kimi_k2",
                "<|tool_calls_section_begin|><|tool_call_begin|>functions.a:7"
                "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"),
            Ids{"functions.a:7"});
  EXPECT_EQ(ids("functionary_v31", "<function=a>{}</function><function=b>{}</function>"),
            (Ids{"call_0", "call_1"}));
}

TEST(ToolCalls, WithoutToolsMarkupIsText) {
  const ParsedMessage message = parse_response(
      {.dialect = find_dialect("hermes_qwen_json"), .calls = false},
      "<think>so</think><tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>");
  EXPECT_EQ(message.reasoning, "so");
  EXPECT_EQ(message.content, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>");
  EXPECT_TRUE(message.tool_calls.empty());
}

}  // namespace
}  // namespace espalier::chat
