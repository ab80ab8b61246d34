#include "chat/call_grammar.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "chat/call_forms.h"
#include "chat/call_values.h"
#include "chat/schema_alternatives.h"

namespace espalier::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t longest_name = 256;
constexpr std::string_view harmony = "gptoss_harmony";
constexpr std::string_view thought_end = "<|end|>";

/// Keywords that say of all arguments together what tags and lists cannot be held to.
const std::vector<std::string> joint_keywords = {"$ref",
                                                 "$dynamicRef",
                                                 "$recursiveRef",
                                                 "allOf",
                                                 "anyOf",
                                                 "const",
                                                 "dependencies",
                                                 "dependentRequired",
                                                 "enum",
                                                 "dependentSchemas",
                                                 "if",
                                                 "not",
                                                 "oneOf",
                                                 "maxProperties",
                                                 "minProperties",
                                                 "propertyNames",
                                                 "patternProperties"};

/// Whether a parser reads it as the name of a function, and in Python of an argument.
bool is_name(std::string_view text) {
  static constexpr std::string_view marks = "_.-:/@$";
  return !text.empty() && text.size() <= longest_name &&
         std::all_of(text.begin(), text.end(), [](unsigned char byte) {
           return byte >= 0x80 || std::isalnum(byte) != 0 ||
                  marks.find(static_cast<char>(byte)) != std::string_view::npos;
         });
}

/// Whether a parser reads it as a key between marks.
bool is_key(std::string_view text) {
  static constexpr std::string_view broken = "\n\r\t<>\"'{}[]:,";
  return !text.empty() && text.size() <= longest_name && !text.starts_with(' ') &&
         !text.ends_with(' ') && text.find_first_of(broken) == std::string_view::npos;
}

[[noreturn]] void refuse_name(const std::string& what, const std::string& name) {
  throw base::RequestError(400, "unsupported_schema",
                           std::string("The name of ")
                               .append(what)
                               .append(" '")
                               .append(name)
                               .append("' cannot be written in this model's form of tool calls."),
                           "tools");
}

/// Whether a joint keyword asks for nothing.
bool is_neutral(const std::string& keyword, const Json& value) {
  static const std::vector<std::string> lists = {
      "allOf",        "dependencies", "dependentRequired", "dependentSchemas", "patternProperties",
      "propertyNames"};
  return value.is_structured() && value.empty() &&
         std::find(lists.begin(), lists.end(), keyword) != lists.end();
}

/// The schema of a function's arguments, an object.
Json schema_of(const Tool& tool, const std::string& place) {
  Json schema = tool.parameters;
  if (schema.is_null() || schema == Json(true)) schema = Json::object();
  if (!schema.is_object()) refuse_keyword("parameters", place);
  Json& type = schema["type"];
  const bool object =
      type.is_null() || type == "object" ||
      (type.is_array() && std::find(type.begin(), type.end(), "object") != type.end());
  if (!object) refuse_keyword("type", place);
  type = "object";
  return schema;
}

/// Writes the rules of one grammar.
class GrammarWriter {
 public:
  GrammarWriter(const Dialect& dialect, const ToolSet& tools, const CallGrammarOptions& options,
                const MarkupReference& reference)
      : form_(find_form(dialect.name)),
        tools_(tools),
        options_(options),
        markup_(dialect, reference),
        values_(form_, markup_, rules_) {}

  std::string write() {
    std::string calls;
    for (std::size_t i = 0; i < tools_.tools().size(); ++i) {
      const Tool& tool = tools_.tools()[i];
      if (!options_.only.empty() && tool.name != options_.only) continue;
      if (!is_name(tool.name)) refuse_name("the function", tool.name);
      const std::string rule = std::string("call_") + std::to_string(i);
      calls += (calls.empty() ? "" : " | ") + rule;
      add_rule(rule, text(form_.open) + lark_string(tool.name) + text(form_.name_end) +
                         arguments(tool, std::to_string(i)) + text(form_.close));
    }
    const std::string more = options_.parallel && !form_.single
                                 ? std::string(" (") + text(form_.separator) + "call)*"
                                 : "";
    std::string start = std::string("start: ") + thought() + text(form_.begin) + "call" + more +
                        text(form_.end) + "\n";
    return start + "call: " + calls + "\n" + rules_ + "NUMBER: /[0-9]{1,3}/\nID: /[a-z0-9]{10}/\n";
  }

 private:
  void add_rule(const std::string& name, const std::string& body) {
    rules_ += name;
    rules_ += ": ";
    rules_ += body;
    rules_ += "\n";
  }

  std::string text(std::string_view source) const { return markup_.text(source); }

  /// Where reasoning has the form of a message, it may go before the call.
  std::string thought() {
    if (form_.dialect != harmony) return {};
    const auto [plain, close] = markup_.split(thought_end);
    rules_ += "THOUGHT: (/(?s:.*)/ & ~/(?s:.*)<\\|end\\|>(?s:.*)/) " + lark_string(plain) + "\n";
    return std::string("(") + text("<|channel|>analysis<|message|>") + "THOUGHT " + close +
           text("<|start|>assistant") + ")? ";
  }

  std::string arguments(const Tool& tool, const std::string& number) {
    const std::string place = "the function '" + tool.name + "'";
    const Json schema = schema_of(tool, place);
    if (form_.arguments == ArgumentForm::json) return std::string("%json ") + schema.dump() + " ";
    const Json properties = properties_of(schema, place);
    const Json required = schema.value("required", Json::array());
    std::vector<std::pair<std::string, bool>> members;
    for (const auto& [key, value] : properties.items()) {
      const bool python = form_.arguments == ArgumentForm::listed && form_.quote.empty();
      if (python ? !is_name(key) : !is_key(key)) refuse_name("the parameter", key);
      const std::string id = number + "_" + std::to_string(members.size());
      const std::string rule = "argument_" + id;
      add_rule(rule, text(form_.key_open) + lark_string(key) +
                         values_.write({.root = schema,
                                        .schema = value,
                                        .read_as = tools_.types(tool.name, key),
                                        .name = id,
                                        .place = "the parameter '" + key + "' of " + place}));
      members.emplace_back(rule,
                           std::find(required.begin(), required.end(), key) != required.end());
    }
    return form_.arguments == ArgumentForm::tagged ? in_sequence(members) : in_list(members);
  }

  /// The schemas of all parameters, those that are only required too.
  static Json properties_of(const Json& schema, const std::string& place) {
    for (const std::string& keyword : joint_keywords) {
      if (schema.contains(keyword) && !is_neutral(keyword, schema[keyword])) {
        refuse_keyword(keyword, place);
      }
    }
    Json properties = schema.value("properties", Json::object());
    if (!properties.is_object()) refuse_keyword("properties", place);
    Json rest = true;
    for (const char* keyword : {"additionalProperties", "unevaluatedProperties"}) {
      if (schema.contains(keyword)) rest = schema[keyword];
    }
    const Json required = schema.value("required", Json::array());
    if (!required.is_array()) refuse_keyword("required", place);
    for (const Json& key : required) {
      if (!key.is_string()) refuse_keyword("required", place);
      const std::string name = key.get<std::string>();
      if (properties.contains(name)) continue;
      if (rest == Json(false)) refuse_keyword("required", place);
      properties[name] = rest;
    }
    return properties;
  }

  /// Arguments one after the other in the schema's order.
  static std::string in_sequence(const std::vector<std::pair<std::string, bool>>& members) {
    std::string body;
    for (const auto& [rule, required] : members) body += rule + (required ? " " : "? ");
    return body;
  }

  /// The same with separators between them.
  std::string in_list(const std::vector<std::pair<std::string, bool>>& members) const {
    const std::string separator = lark_string(form_.value_end);
    std::string choices;
    bool may_be_empty = true;
    for (std::size_t first = 0; first < members.size(); ++first) {
      if (first > 0) choices += "| ";
      choices += members[first].first + " ";
      for (std::size_t i = first + 1; i < members.size(); ++i) {
        choices += "(" + separator + members[i].first + ")" + (members[i].second ? " " : "? ");
      }
      if (members[first].second) {  // what comes before the first required one may be left out
        may_be_empty = false;
        break;
      }
    }
    if (choices.empty()) return {};
    return "(" + choices + ")" + (may_be_empty ? "? " : " ");
  }

  const CallForm& form_;
  const ToolSet& tools_;
  const CallGrammarOptions& options_;
  MarkupWriter markup_;
  std::string rules_;
  ValueWriter values_;
};

}  // namespace

std::string argument_close(const Dialect& dialect) {
  const CallForm& form = find_form(dialect.name);
  if (form.dialect == harmony) return std::string(thought_end);
  if (form.arguments == ArgumentForm::json) return {};
  return std::string(form.arguments == ArgumentForm::tagged ? form.value_end : form.quote);
}

std::string call_grammar(const Dialect& dialect, const ToolSet& tools,
                         const CallGrammarOptions& options, const MarkupReference& reference) {
  return GrammarWriter(dialect, tools, options, reference).write();
}

}  // namespace espalier::chat
