#pragma once

#include <memory>
#include <string>
#include <vector>

#include "chat/dialect.h"

namespace espalier::chat {

/// Calls as tags around a name and around each parameter's key and value. Values have no quotes:
/// the tool's schema says what they are.
struct TaggedCallForm {
  std::vector<std::string> sections = {};  // open a run of calls; nothing by themselves
  std::string function_open;               // before the name
  std::string function_name_end = {};      // after it; empty: white space
  std::string parameter_open;
  std::string parameter_name_end;
  std::string value_open = {};          // between key and value, white space around it
  std::vector<std::string> value_ends;  // the first is the right one
  std::string function_close;
  bool line_around_value = false;  // one line end on each side belongs to the tags
  bool attributes = false;         // string="true" may stand after a parameter's name
};

std::shared_ptr<const CallSyntax> tagged_calls(TaggedCallForm form);

}  // namespace espalier::chat
