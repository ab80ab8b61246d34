#pragma once

#include <string>

#include "server/protocol/parameter.h"

namespace espalier::server::protocol {

enum class ToolChoice {
  automatic,  // the model decides
  none,       // no calls
  required,   // at least one call
};

/// The functions that a request offers to the model.
struct ToolOptions {
  Json tools = Json::array();  // [{"type": "function", "function": {name, …}}]
  ToolChoice choice = ToolChoice::automatic;
  std::string only = {};  // with `required`: the function that must be called
  bool parallel = true;   // several calls in one answer

  /// Calls may come.
  bool offered() const { return !tools.empty() && choice != ToolChoice::none; }
};

/// Reads `tools`, `tool_choice` as OpenAI has them, and the older `functions`, `function_call`.
/// Throw `RequestError` 400 naming what is wrong.
void read_tools(const Parameter& parameter, ToolOptions& options);
void read_tool_choice(const Parameter& parameter, ToolOptions& options);
void read_functions(const Parameter& parameter, ToolOptions& options);
void read_function_call(const Parameter& parameter, ToolOptions& options);

/// Throws `RequestError` 400 when the choice names what is not offered.
void check_tools(const ToolOptions& options);

}  // namespace espalier::server::protocol
