#include "server/protocol/tool_options.h"

#include <algorithm>

namespace espalier::server::protocol {
namespace {

/// One function with its name, description and schema.
Json read_tool_function(const Parameter& function) {
  Json result = Json::object();
  for (const auto& [key, value] : function.members()) {
    if (key == "name") {
      result["name"] = value.string();
      if (value.string().empty()) value.refuse("must not be empty");
    } else if (key == "description") {
      result["description"] = value.string();
    } else if (key == "parameters") {
      if (!value.json().is_object()) value.refuse("must be a JSON schema", "invalid_type");
      result["parameters"] = value.json();
    } else if (key == "strict") {
      value.boolean();  // arguments of forced calls always follow the schema
    } else {
      result[key] = value.json();  // templates may print it (`return`, `examples`)
    }
  }
  if (!result.contains("name")) function.refuse("needs a 'name'", "missing_parameter");
  return result;
}

void add_function(const Parameter& function, ToolOptions& options) {
  Json read = read_tool_function(function);
  for (const Json& tool : options.tools) {
    if (tool["function"]["name"] == read["name"]) {
      function.refuse("has the name of another function");
    }
  }
  options.tools.push_back({{"type", "function"}, {"function", std::move(read)}});
}

/// `{"name": …}` of a choice.
void read_name(const Parameter& parameter, ToolOptions& options) {
  const Json* name = parameter.find("name");
  if (name == nullptr) parameter.refuse("needs a 'name'", "missing_parameter");
  options.only = Parameter(parameter.name() + ".name", *name).string();
  options.choice = ToolChoice::required;
}

void read_choice_word(const Parameter& parameter, ToolOptions& options) {
  const std::string word = parameter.string();
  if (word == "none") {
    options.choice = ToolChoice::none;
  } else if (word == "auto") {
    options.choice = ToolChoice::automatic;
  } else if (word == "required" || word == "any") {
    options.choice = ToolChoice::required;
  } else {
    parameter.refuse("must be 'none', 'auto', 'required' or name a function");
  }
}

}  // namespace

void read_tools(const Parameter& parameter, ToolOptions& options) {
  for (const Parameter& tool : parameter.elements()) {
    const Json* type = tool.find("type");
    if (type != nullptr && *type != "function") {
      tool.refuse("is of a type that is not supported; functions are", "unsupported_parameter");
    }
    const Json* function = tool.find("function");
    if (function == nullptr) tool.refuse("needs a 'function'", "missing_parameter");
    add_function(Parameter(tool.name() + ".function", *function), options);
  }
}

void read_tool_choice(const Parameter& parameter, ToolOptions& options) {
  if (!parameter.json().is_object()) {
    read_choice_word(parameter, options);
    return;
  }
  const Json* function = parameter.find("function");
  if (function == nullptr) {
    parameter.refuse("must be a word or name a 'function'", "unsupported_parameter");
  }
  read_name(Parameter(parameter.name() + ".function", *function), options);
}

void read_functions(const Parameter& parameter, ToolOptions& options) {
  for (const Parameter& function : parameter.elements()) add_function(function, options);
}

void read_function_call(const Parameter& parameter, ToolOptions& options) {
  if (parameter.json().is_object()) {
    read_name(parameter, options);
  } else {
    read_choice_word(parameter, options);
  }
}

void check_tools(const ToolOptions& options) {
  if (options.choice != ToolChoice::required) return;
  const bool found = std::any_of(options.tools.begin(), options.tools.end(), [&](const Json& tool) {
    return options.only.empty() || tool["function"]["name"] == options.only;
  });
  if (!found) {
    throw base::RequestError(400, "invalid_value",
                             options.only.empty()
                                 ? "'tool_choice' asks for a call, but 'tools' offers no function."
                                 : "'tool_choice' names the function '" + options.only +
                                       "', which 'tools' does not offer.",
                             "tool_choice");
  }
}

}  // namespace espalier::server::protocol
