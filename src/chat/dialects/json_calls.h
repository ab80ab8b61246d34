#pragma once

#include <memory>
#include <string>
#include <vector>

#include "chat/dialect.h"

namespace espalier::chat {

/// Calls as JSON objects with a name and arguments, one, several in a row, or in an array.
struct JsonCallForm {
  std::vector<std::string> openings;
  std::vector<std::string> stops = {};  // what ends a call whose JSON does not
  bool bare = false;                    // objects may stand without an opening
  bool bare_array = false;              // arrays of them too
  std::vector<std::string> name_keys = {"name", "tool_name"};
  std::vector<std::string> argument_keys = {"arguments", "parameters", "args"};
  std::vector<std::string> id_keys = {"id", "tool_call_id"};
  std::vector<std::string> silent = {};  // names that stand for "no call"
};

std::shared_ptr<const CallSyntax> json_calls(JsonCallForm form);

/// Reads the objects behind an opening that another syntax shares with this one. False: there is no
/// call.
Task<bool> parse_json_calls(ParseContext& context, const JsonCallForm& form);

}  // namespace espalier::chat
