#include "chat/call_grammar.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <stdexcept>

#include "chat/literal.h"
#include "chat/schema_reference.h"

namespace espalier::chat {
namespace {

using Json = nlohmann::ordered_json;

enum class ArgumentForm { json, tagged, listed };

// In the texts of a form, these bytes stand for rules.
constexpr char number_byte = '\x01';  // a number
constexpr char id_byte = '\x02';      // ten letters and digits

constexpr int choice_depth = 8;  // of choices within choices

/// The texts around calls. Call: `open` NAME `name_end` ARGUMENTS `close`.
struct CallForm {
  std::string_view dialect;
  std::string_view begin = "";
  std::string_view open = "";
  std::string_view name_end = "";
  std::string_view close = "";
  std::string_view separator = "";
  std::string_view end = "";
  bool single = false;  // the dialect has room for one call
  ArgumentForm arguments = ArgumentForm::json;
  // Of an argument that is no JSON: `key_open` KEY `key_end` VALUE `value_end`.
  std::string_view key_open = "";
  std::string_view key_end = "";
  std::string_view value_end = "";
  std::string_view quote = "";           // around strings; empty: they have none
  std::string_view string_key_end = "";  // in place of key_end before strings
};

constexpr std::string_view json_open = "{\"name\": \"";
constexpr std::string_view json_middle = "\", \"arguments\": ";
constexpr std::string_view json_parameters = "\", \"parameters\": ";
constexpr std::string_view tag_open = "<tool_call>\n{\"name\": \"";
constexpr std::string_view tag_close = "}\n</tool_call>";

constexpr std::array json_forms = {
    CallForm{"hermes_qwen_json", "", tag_open, json_middle, tag_close, "\n"},
    CallForm{"generic_json", "", tag_open, json_middle, tag_close, "\n"},
    CallForm{"ernie_json", "", tag_open, json_middle, tag_close, "\n"},
    CallForm{"granite3_json", "<|tool_call|>[", json_open, json_middle, "}", ", ", "]"},
    CallForm{"phi4_mini_json", "<|tool_call|>[", json_open, json_middle, "}", ", ",
             "]<|/tool_call|>"},
    CallForm{"internlm_plugin", "", "<|action_start|><|plugin|>\n{\"name\": \"", json_parameters,
             "}<|action_end|>", "\n"},
    CallForm{"nemotron_json", "<TOOLCALL>[", json_open, json_middle, "}", ", ", "]</TOOLCALL>"},
    CallForm{"hunyuan_json", "<tool_calls>[", json_open, json_middle, "}", ", ", "]</tool_calls>"},
    CallForm{"apriel_json", "<tool_calls>[", json_open, json_middle, "}", ", ", "]</tool_calls>"},
    CallForm{"minimax_m1_json", "<tool_calls>\n", json_open, json_middle, "}", "\n",
             "\n</tool_calls>"},
    CallForm{"gigachat_json", "", "function call<|role_sep|>\n{\"name\": \"", json_middle, "}", "",
             "", true},
    CallForm{"firefunction_json", " functools[", json_open, json_middle, "}", ", ", "]"},
    CallForm{"command_r7b_action", "<|START_ACTION|>[\n    ",
             "{\"tool_call_id\": \"\x01\", \"tool_name\": \"", json_parameters, "}", ",\n    ",
             "\n]<|END_ACTION|>"},
    CallForm{"command_r_action", "Action: ```json\n[\n    ", "{\"tool_name\": \"", json_parameters,
             "}", ",\n    ", "\n]```"},
    CallForm{"llama3_json", "", json_open, json_parameters, "}", "; "},
    CallForm{"deepseek_v3", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
             "\n```json\n", "\n```<｜tool▁call▁end｜>", "\n", "<｜tool▁calls▁end｜>"},
    CallForm{"deepseek_v31", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
             "<｜tool▁call▁end｜>", "", "<｜tool▁calls▁end｜>"},
    CallForm{"kimi_k2", "<|tool_calls_section_begin|>", "<|tool_call_begin|>functions.",
             ":\x01<|tool_call_argument_begin|>", "<|tool_call_end|>", "",
             "<|tool_calls_section_end|>"},
    CallForm{"mistral_v3_json", "[TOOL_CALLS][", json_open, json_middle, "}", ", ", "]"},
    CallForm{"mistral_v11_args", "", "[TOOL_CALLS]", "[ARGS]"},
    CallForm{"functionary_v31", "", "<function=", ">", "</function>"},
    CallForm{"functionary_v32", "", "", "\n", "", ">>>"},
    CallForm{"gptoss_harmony", "", "<|channel|>commentary to=functions.",
             " <|constrain|>json<|message|>", "", "", "", true},
    CallForm{"solar_args", "<|tool_calls|>", "<|tool_call:begin|>\x02<|tool_call:name|>",
             "<|tool_call:args|>", "<|tool_call:end|>", "", "<|calls|>"},
};

constexpr std::array argument_forms = {
    CallForm{"qwen3_coder_xml", "", "<tool_call>\n<function=", ">\n", "</function>\n</tool_call>",
             "\n", "", false, ArgumentForm::tagged, "<parameter=", ">\n", "\n</parameter>\n"},
    CallForm{"seed_oss_xml", "", "<seed:tool_call>\n<function=", ">\n",
             "</function>\n</seed:tool_call>", "\n", "", false, ArgumentForm::tagged,
             "<parameter=", ">", "</parameter>\n"},
    CallForm{"glm45_xml", "", "<tool_call>", "\n", "</tool_call>", "\n", "", false,
             ArgumentForm::tagged, "<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"},
    CallForm{"minimax_m2", "<minimax:tool_call>\n", "<invoke name=\"", "\">\n", "</invoke>\n", "",
             "</minimax:tool_call>", false, ArgumentForm::tagged, "<parameter name=\"", "\">",
             "</parameter>\n"},
    CallForm{"deepseek_v32_dsml", "<｜DSML｜function_calls>\n", "<｜DSML｜invoke name=\"", "\">\n",
             "</｜DSML｜invoke>\n", "", "</｜DSML｜function_calls>", false, ArgumentForm::tagged,
             "<｜DSML｜parameter name=\"", "\" string=\"false\">", "</｜DSML｜parameter>\n", "",
             "\" string=\"true\">"},
    CallForm{"deepseek_v4_dsml", "<｜DSML｜tool_calls>\n", "<｜DSML｜invoke name=\"", "\">\n",
             "</｜DSML｜invoke>\n", "", "</｜DSML｜tool_calls>", false, ArgumentForm::tagged,
             "<｜DSML｜parameter name=\"", "\" string=\"false\">", "</｜DSML｜parameter>\n", "",
             "\" string=\"true\">"},
    CallForm{"hunyuan3_xml", "<tool_calls>\n", "<tool_call>", "<tool_sep>\n", "</tool_call>\n", "",
             "</tool_calls>", false, ArgumentForm::tagged, "<arg_key>", "</arg_key>\n<arg_value>",
             "</arg_value>\n"},
    CallForm{"minicpm5_xml", "", "<function name=\"", "\">", "</function>", "", "", false,
             ArgumentForm::tagged, "<param name=\"", "\">", "</param>"},
    CallForm{"gemma4", "", "<|tool_call>call:", "{", "}<tool_call|>", "", "", false,
             ArgumentForm::listed, "", ":", ",", "<|\"|>"},
    CallForm{"pythonic", "[", "", "(", ")", ", ", "]", false, ArgumentForm::listed, "", "=", ", "},
    CallForm{"lfm2_pythonic", "<|tool_call_start|>[", "", "(", ")", ", ", "]<|tool_call_end|>",
             false, ArgumentForm::listed, "", "=", ", "},
    CallForm{"olmo3_pythonic", "<function_calls>", "", "(", ")", "\n", "</function_calls>", false,
             ArgumentForm::listed, "", "=", ", "},
    CallForm{"gemma3_tool_code", "```tool_code\n", "", "(", ")", "\n", "\n```", false,
             ArgumentForm::listed, "", "=", ", "},
};

const CallForm& find_form(std::string_view dialect) {
  for (const CallForm& form : json_forms) {
    if (form.dialect == dialect) return form;
  }
  for (const CallForm& form : argument_forms) {
    if (form.dialect == dialect) return form;
  }
  throw std::logic_error("[call_grammar] there is no form for " + std::string(dialect));
}

/// The expression that matches `text` alone, inside /…/.
std::string escape_expression(std::string_view text) {
  static constexpr std::string_view special = "\\.+*?()|[]{}^$/#&~-";
  std::string escaped;
  for (const char byte : text) {
    if (byte == '\n') {
      escaped += "\\n";
      continue;
    }
    if (special.find(byte) != std::string_view::npos) escaped += '\\';
    escaped += byte;
  }
  return escaped;
}

/// Writes the rules of one grammar.
class GrammarWriter {
 public:
  GrammarWriter(const Dialect& dialect, const ToolSet& tools, const CallGrammarOptions& options,
                const MarkupReference& reference)
      : form_(find_form(dialect.name)),
        tools_(tools),
        options_(options),
        reference_(reference),
        markup_(markup_of(dialect, dialect.reasoning)) {
    // The longest first: one may begin another.
    std::sort(markup_.begin(), markup_.end(),
              [](const auto& left, const auto& right) { return left.size() > right.size(); });
  }

  std::string write() {
    std::string calls;
    for (std::size_t i = 0; i < tools_.tools().size(); ++i) {
      const Tool& tool = tools_.tools()[i];
      if (!options_.only.empty() && tool.name != options_.only) continue;
      const std::string rule = std::string("call_") + std::to_string(i);
      calls += (calls.empty() ? "" : " | ") + rule;
      add_rule(rule, text(form_.open) + quoted(tool.name) + text(form_.name_end) +
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

  /// Where reasoning has the form of a message, it may go before the call.
  std::string thought() {
    if (form_.dialect != "gptoss_harmony") return {};
    return std::string("(") + text("<|channel|>analysis<|message|>") +
           free_text("<|end|>", "thought") + text("<|start|>assistant") + ")? ";
  }

  static std::string quoted(std::string_view literal) {
    return literal.empty() ? std::string() : json_string(literal) + " ";
  }

  /// A form's text: markup by reference, the rest quoted.
  std::string text(std::string_view source) const {
    std::string result;
    std::string literal;
    while (!source.empty()) {
      const auto found = std::find_if(markup_.begin(), markup_.end(), [source](const auto& mark) {
        return source.starts_with(mark);
      });
      const char byte = source.front();
      if (found == markup_.end() && byte != number_byte && byte != id_byte) {
        literal += byte;
        source.remove_prefix(1);
        continue;
      }
      result += quoted(std::exchange(literal, {}));
      if (found != markup_.end()) {
        result += reference_(*found) + " ";
        source.remove_prefix(found->size());
      } else {
        result += byte == number_byte ? "NUMBER " : "ID ";
        source.remove_prefix(1);
      }
    }
    return result + quoted(literal);
  }

  static Json schema_of(const Tool& tool) {
    if (!tool.parameters.is_object() || tool.parameters.empty()) return Json{{"type", "object"}};
    Json schema = tool.parameters;
    if (!schema.contains("type")) schema["type"] = "object";
    return schema;
  }

  std::string arguments(const Tool& tool, const std::string& number) {
    Json schema = schema_of(tool);
    if (form_.arguments == ArgumentForm::json) return std::string("%json ") + schema.dump() + " ";
    Json properties = schema.value("properties", Json::object());
    const Json required = schema.value("required", Json::array());
    for (const Json& key : required) {
      if (key.is_string() && !properties.contains(key.get<std::string>())) {
        properties[key.get<std::string>()] = Json::object();
      }
    }
    std::vector<std::pair<std::string, bool>> members;
    for (const auto& [key, value] : properties.items()) {
      const std::string rule = "argument_" + number + "_" + std::to_string(members.size());
      add_rule(rule, argument(tool, schema, key, value, rule));
      members.emplace_back(rule,
                           std::find(required.begin(), required.end(), key) != required.end());
    }
    return form_.arguments == ArgumentForm::tagged ? in_sequence(members) : in_list(members);
  }

  /// Arguments one after the other in the schema's order.
  static std::string in_sequence(const std::vector<std::pair<std::string, bool>>& members) {
    std::string body;
    for (const auto& [rule, required] : members) body += rule + (required ? " " : "? ");
    return body;
  }

  /// The same with separators between them.
  std::string in_list(const std::vector<std::pair<std::string, bool>>& members) const {
    const std::string separator = quoted(form_.value_end);
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

  std::string argument(const Tool& tool, const Json& schema, const std::string& key,
                       const Json& property, const std::string& rule) {
    const ValueTypes types = tools_.types(tool.name, key);
    const bool string = types.known && types.string;
    const bool tagged = form_.arguments == ArgumentForm::tagged;
    const std::string key_end(string && !form_.string_key_end.empty() ? form_.string_key_end
                                                                      : form_.key_end);
    std::string body = text(form_.key_open) + quoted(key) + text(key_end);
    if (string && (tagged || !form_.quote.empty()))
      return body + bare_value(schema, property, rule);
    body += json_value(schema, property);
    return tagged ? body + text(form_.value_end) : body;
  }

  /// A value in JSON; definitions that it refers to come along.
  static std::string json_value(const Json& schema, Json property) {
    for (const char* definitions : {"$defs", "definitions"}) {
      if (property.is_object() && schema.contains(definitions)) {
        property[definitions] = schema[definitions];
      }
    }
    return std::string("%json ") + property.dump() + " ";
  }

  /// A value that is or may be a string: those have no quotes, or the dialect's own.
  std::string bare_value(const Json& schema, const Json& property, const std::string& rule) {
    const bool tagged = form_.arguments == ArgumentForm::tagged;
    const std::string open = tagged ? std::string() : text(form_.quote);
    const std::string_view closing = tagged ? form_.value_end : form_.quote;
    // With a mark of its own for strings, what is behind it can be nothing else.
    const bool strings_only = !form_.string_key_end.empty();
    std::vector<const Json*> choices;
    add_choices(schema, property, 0, choices);
    std::string values;
    const auto add = [&values](const std::string& value) {
      if (!values.empty()) values += "| ";
      values += value;
    };
    for (const Json* choice : choices) {
      std::vector<Json> literals;
      if (choice->is_object() && choice->contains("const")) literals = {choice->at("const")};
      if (choice->is_object() && choice->contains("enum")) {
        literals = choice->at("enum").get<std::vector<Json>>();
      }
      if (literals.empty() && may_be_string(*choice)) return open + free_text(closing, rule);
      for (const Json& literal : literals) {
        if (literal.is_string()) {
          add(open + quoted(literal.get<std::string>()) + text(closing));
        } else if (!strings_only) {
          add(quoted(literal.dump()) + (tagged ? text(closing) : ""));
        }
      }
      if (!literals.empty() || strings_only) continue;
      add(json_value(schema, *choice) + (tagged ? text(closing) : ""));
    }
    return "(" + values + ") ";
  }

  /// The schemas one of which a value fulfils.
  static void add_choices(const Json& schema, const Json& property, int depth,
                          std::vector<const Json*>& choices) {
    const Json& resolved = resolve_schema(schema, property);
    if (resolved.is_object() && depth < choice_depth) {
      for (const char* key : {"anyOf", "oneOf"}) {
        if (!resolved.contains(key) || !resolved[key].is_array()) continue;
        for (const Json& choice : resolved[key]) add_choices(schema, choice, depth + 1, choices);
        return;
      }
    }
    choices.push_back(&resolved);
  }

  static bool may_be_string(const Json& schema) {
    if (!schema.is_object() || !schema.contains("type")) return true;
    const Json& type = schema["type"];
    return type == "string" ||
           (type.is_array() && std::find(type.begin(), type.end(), "string") != type.end());
  }

  /// Any text up to `closing`, which ends it where it first stands.
  std::string free_text(std::string_view closing, const std::string& rule) {
    const std::string mark = text(closing);
    if (mark.starts_with('<')) return "/(?s:.*)/ " + mark;
    rules_ += rule + "_text[lazy]: /(?s:.*)" + escape_expression(closing) + "/\n";
    return rule + "_text ";
  }

  const CallForm& form_;
  const ToolSet& tools_;
  const CallGrammarOptions& options_;
  const MarkupReference& reference_;
  std::vector<std::string> markup_;
  std::string rules_;
};

}  // namespace

std::string argument_close(const Dialect& dialect) {
  const CallForm& form = find_form(dialect.name);
  if (form.arguments == ArgumentForm::json) return {};
  return std::string(form.arguments == ArgumentForm::tagged ? form.value_end : form.quote);
}

std::string call_grammar(const Dialect& dialect, const ToolSet& tools,
                         const CallGrammarOptions& options, const MarkupReference& reference) {
  return GrammarWriter(dialect, tools, options, reference).write();
}

}  // namespace espalier::chat
