#pragma once

#include <map>
#include <string>

#include "chat/dialect.h"
#include "chat/template.h"

namespace espalier::chat {

/// How a model writes its answers, as its chat template shows.
struct TemplateStyle {
  const Dialect* dialect = nullptr;  // of tool calls; `generic_json` when the template has none
  ReasoningMarks reasoning = {};
  bool reasons = false;      // the template itself knows the reasoning's marks
  bool shows_tools = false;  // the template tells the model of the tools offered
  bool shows_calls = false;  // and prints past calls
};

/// Finds it out: renders a conversation with a tool and a past call of it and looks at what the
/// template prints, then at its source. `compiled` may be null: the model has no template.
TemplateStyle find_style(const ChatTemplate* compiled,
                         const std::map<std::string, std::string>& sources,
                         const std::map<std::string, std::string>& special_tokens);

/// A conversation, as JSON messages, for a template that does not know tools: the tools are
/// described in the system message, past calls become text, results become the user's.
nlohmann::ordered_json describe_tools(const nlohmann::ordered_json& messages, const ToolSet& tools,
                                      const TemplateStyle& style);

}  // namespace espalier::chat
