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

ParsedMessage parse_pieces(const Dialect& dialect, const Json& tools, const Json& entry,
                           std::size_t piece) {
  ResponseParser parser({.dialect = &dialect,
                         .prompt_end = entry.value("prompt_ends_with", ""),
                         .tools = ToolSet(tools.dump())});
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
    if (calls[i].name != expected[i]["name"] || arguments != expected[i]["arguments"]) return false;
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
    if (!malformed && last.name != entry["incomplete_call"]) return false;
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
    for (const Json& entry : fixture["cases"]) {
      for (const std::size_t piece :
           {std::size_t{1} << 30, std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{7}}) {
        const ParsedMessage message = parse_pieces(*dialect, fixture["tools"], entry, piece);
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

}  // namespace
}  // namespace espalier::chat
