#include "server/protocol/chat_messages.h"

#include <algorithm>
#include <array>
#include <optional>

#include "server/protocol/json_text.h"

namespace espalier::server::protocol {
namespace {

/// The texts of an array of content parts, on lines of their own.
std::string join_text_parts(const Parameter& content) {
  std::string text;
  for (const Parameter& part : content.elements()) {
    if (!text.empty()) text += '\n';
    if (part.json().is_string()) {
      text += part.string();
      continue;
    }
    std::string type;
    std::optional<std::string> part_text;
    for (const auto& [key, value] : part.members()) {
      if (key == "type") {
        type = value.string();
      } else if (key == "text" || key == "refusal") {
        part_text = value.string();
      } else if (key != "cache_control") {
        value.refuse("is not supported; contents are text parts", "unsupported_content");
      }
    }
    if (type != "text" && type != "input_text" && type != "output_text" && type != "refusal") {
      part.refuse("has the type '" + shown(type) + "'; this model takes text parts alone",
                  "unsupported_content");
    }
    if (!part_text) part.refuse("needs a 'text'", "missing_parameter");
    text += *part_text;
  }
  return text;
}

std::string read_text(const Parameter& content) {
  return content.json().is_array() ? join_text_parts(content) : content.string();
}

std::string read_role(const Parameter& parameter) {
  static constexpr std::array<std::string_view, 4> roles = {"system", "user", "assistant", "tool"};
  std::string role = parameter.string();
  if (role == "developer") role = "system";
  if (role == "function") role = "tool";  // the older name
  if (std::find(roles.begin(), roles.end(), role) == roles.end()) {
    parameter.refuse("is '" + shown(role) +
                     "'; the roles are system, developer, user, assistant, tool and function");
  }
  return role;
}

/// Templates expect the arguments as an object. What a model once wrote and is no JSON object, or
/// none that may be used, goes to the template as the text it is: the conversation stays usable. No
/// text is no argument; an object that was made text twice is one.
Json read_arguments(const Parameter& arguments) {
  if (arguments.json().is_object()) return arguments.json();
  std::string text = arguments.string();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return Json::object();
  try {
    Json parsed = parse_json(text);
    if (parsed.is_string()) parsed = parse_json(parsed.get<std::string>());
    if (parsed.is_object()) return parsed;
  } catch (const JsonError&) {
    // Text.
  }
  return text;
}

Json read_called_function(const Parameter& function) {
  Json result = Json::object();
  for (const auto& [key, value] : function.members()) {
    if (key == "name") {
      result["name"] = value.string();
    } else if (key == "arguments") {
      result["arguments"] = read_arguments(value);
    } else {
      value.refuse("is not part of a function call", "unknown_parameter");
    }
  }
  if (!result.contains("name")) function.refuse("needs a 'name'", "missing_parameter");
  if (!result.contains("arguments")) result["arguments"] = Json::object();
  return result;
}

Json read_tool_calls(const Parameter& calls) {
  Json result = Json::array();
  for (const Parameter& call : calls.elements()) {
    Json read = Json::object();
    for (const auto& [key, value] : call.members()) {
      if (key == "id" || key == "type") {
        read[key] = value.string();
      } else if (key == "function") {
        read["function"] = read_called_function(value);
      } else if (key == "index") {
        value.integer(0, 1 << 20);  // a client's copy of a streamed call; the order says it again
      } else {
        value.refuse("is not part of a tool call", "unknown_parameter");
      }
    }
    if (!read.contains("function")) call.refuse("needs a 'function'", "missing_parameter");
    result.push_back(std::move(read));
  }
  return result;
}

/// The older form of one tool call.
Json read_function_call(const Parameter& function) {
  return Json::array({{{"type", "function"}, {"function", read_called_function(function)}}});
}

bool is_reasoning(std::string_view key) {
  return key == "reasoning_content" || key == "reasoning" || key == "reasoning_text";
}

/// Whether a member may be sent although templates do not use it: it repeats what a server answered
/// and asks for nothing.
bool is_echo(std::string_view key, const Parameter& value) {
  if (key == "annotations") return value.json().is_array();
  return key == "refusal" && value.json().is_string();
}

Json read_message(const Parameter& message) {
  Json result = Json::object();
  if (const Json* role = message.find("role")) {
    result["role"] = read_role(Parameter(message.name() + ".role", *role));
  } else {
    message.refuse("needs a 'role'", "missing_parameter");
  }
  const bool assistant = result["role"] == "assistant";
  for (const auto& [key, value] : message.members()) {
    if (key == "role") continue;
    if (key == "content") {
      result["content"] = read_text(value);
    } else if (key == "name" || key == "tool_call_id") {
      result[key] = value.string();
    } else if (assistant && key == "tool_calls") {
      Json calls = read_tool_calls(value);
      if (!calls.empty()) result["tool_calls"] = std::move(calls);
    } else if (assistant && key == "function_call") {
      result["tool_calls"] = read_function_call(value);
    } else if (assistant && is_reasoning(key)) {
      result["reasoning_content"] = value.string();
    } else if (!(assistant && is_echo(key, value))) {
      value.refuse("is not supported", "unknown_parameter");
    }
  }
  if (!result.contains("content")) {
    const bool may_be_empty = assistant || result["role"] == "tool";
    if (!may_be_empty) message.refuse("needs a 'content'", "missing_parameter");
    result["content"] = "";
  }
  return result;
}

}  // namespace

Json read_messages(const Parameter& messages) {
  Json result = Json::array();
  for (const Parameter& message : messages.elements()) result.push_back(read_message(message));
  if (result.empty()) messages.refuse("must hold at least one message");
  return result;
}

}  // namespace espalier::server::protocol
