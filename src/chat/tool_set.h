#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace espalier::chat {

/// The types that a schema lets a value have.
struct ValueTypes {
  bool known = false;  // the schema says something; else every type may come
  bool string = false;
  bool number = false;
  bool boolean = false;
  bool null = false;
  bool object = false;
  bool array = false;

  /// A text without quotes can only be a string.
  bool only_string() const { return string && !number && !boolean && !null && !object && !array; }
};

/// One function that a model may call.
struct Tool {
  std::string name;
  std::string description;
  nlohmann::ordered_json parameters;  // a JSON schema; null: none given
};

/// The tools that a request offers, with what their schemas say about arguments. Immutable.
class ToolSet {
 public:
  ToolSet() = default;
  /// Reads the API's array of `{"type": "function", "function": {…}}`, also bare functions; what is
  /// neither is left out. `json` that is empty, null or no array gives no tools.
  explicit ToolSet(std::string_view json);

  const std::vector<Tool>& tools() const { return tools_; }
  const Tool* find(std::string_view name) const;
  bool empty() const { return tools_.empty(); }

  /// The types of a parameter; a string where nothing is known about the function or it has no such
  /// parameter.
  ValueTypes types(std::string_view tool, std::string_view parameter) const;
  /// The name of a function's parameter by its place; nothing when it has no so many.
  std::optional<std::string> parameter_at(std::string_view tool, std::size_t place) const;

 private:
  std::vector<Tool> tools_;
};

/// The text of a value that was written without JSON's quotes, as JSON: what the types make of it,
/// a string when it is nothing else. Digits are kept.
std::string typed_json(std::string_view text, const ValueTypes& types);

}  // namespace espalier::chat
