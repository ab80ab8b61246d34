#include "chat/call_values.h"

#include <algorithm>
#include <initializer_list>

#include "chat/literal.h"
#include "chat/schema_reference.h"

namespace espalier::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view space = "[ \\t\\r\\n]*";
constexpr std::string_view integer = "-?(?:0|[1-9][0-9]*)";
constexpr std::string_view fraction = "(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?";

/// Conditions that an alternative with strings among its types cannot be split by.
const std::vector<std::string> conditions = {"not",  "if",          "then",
                                             "else", "$dynamicRef", "$recursiveRef"};
/// Keywords that say more of a value than `enum` and `const` beside them.
const std::vector<std::string> restrictions = {
    "pattern",          "format",     "minLength",   "maxLength",        "minimum",    "maximum",
    "exclusiveMinimum", "multipleOf", "items",       "exclusiveMaximum", "properties", "required",
    "minItems",         "maxItems",   "prefixItems", "patternProperties"};
const std::vector<std::string> number_bounds = {"minimum", "maximum", "exclusiveMinimum",
                                                "exclusiveMaximum", "multipleOf"};

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

/// Its parts one after the other.
std::string concat(std::initializer_list<std::string_view> parts) {
  std::string all;
  for (const std::string_view part : parts) all += part;
  return all;
}

std::string join(const std::vector<std::string>& choices) {
  std::string all;
  for (const std::string& choice : choices) {
    if (!all.empty()) all += "| ";
    all += choice;
    all += ' ';
  }
  return all;
}

std::string json_rule(const Json& document) { return concat({"%json ", document.dump(), " "}); }

bool has_bounds(const SchemaParts& way) {
  return std::any_of(way.begin(), way.end(), [](const Json& part) {
    return std::any_of(number_bounds.begin(), number_bounds.end(),
                       [&part](const std::string& keyword) { return part.contains(keyword); });
  });
}

/// What the schema allows and the parser can read.
ValueTypes readable(ValueTypes types, const ValueTypes& read_as) {
  if (!read_as.known) return types;
  types.string &= read_as.string;
  types.number &= read_as.number;
  types.boolean &= read_as.boolean;
  types.null &= read_as.null;
  types.object &= read_as.object;
  types.array &= read_as.array;
  return types;
}

/// Expressions of the texts that the parser takes for another type than a string.
std::vector<std::string> other_readings(const ValueTypes& read_as, bool bounded_numbers) {
  const bool any = !read_as.known;
  std::vector<std::string> readings;
  const auto add = [&readings](std::string_view expression, std::string_view rest) {
    readings.push_back(concat({"/", space, expression, rest, "/"}));
  };
  constexpr std::string_view anything = "(?s:.*)";
  if (any || read_as.null) add("(?i:null|none)", space);
  if (any || read_as.boolean) add("(?i:true|false)", space);
  if (any || read_as.number) {
    // Bounded ones have a rule of their own: what begins like one has to be one.
    if (bounded_numbers) {
      add("[-0-9]", anything);
    } else {
      add("-?[0-9]+(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", space);
    }
  }
  if (any || read_as.object) add("\\{", anything);
  if (any || read_as.array) add("\\[", anything);
  if (any) add("\"", anything);
  return readings;
}

}  // namespace

/// The values of a parameter by the way they are written.
struct ValueWriter::Pieces {
  std::vector<std::string> texts = {};      // expressions of strings
  std::vector<std::string> words = {};      // single strings
  std::vector<std::string> scalars = {};    // expressions of other values
  std::vector<std::string> documents = {};  // rules of other values
  bool bounded_numbers = false;             // some of the rules are of numbers
};

std::string ValueWriter::write(const Argument& argument) const {
  const std::string end = is_tagged() ? markup_.text(form_.value_end) : std::string();
  std::string whole = concat(
      {markup_.text(form_.key_end), json_rule(as_document(argument.root, argument.schema)), end});
  if (!is_tagged() && form_.quote.empty()) return whole;
  const auto [ways, exclusive] =
      schema_alternatives(argument.root, argument.schema, argument.place);
  const bool string = std::any_of(ways.begin(), ways.end(),
                                  [](const SchemaParts& way) { return allowed_types(way).string; });
  if (!string) {
    if (guesses() && argument.read_as.known && argument.read_as.only_string()) {
      refuse_keyword("type", argument.place);
    }
    return whole;
  }
  if (!exclusive) refuse_keyword("oneOf", argument.place);
  Pieces pieces;
  for (const SchemaParts& way : ways) add_way(argument, way, pieces);
  return combine(argument, pieces);
}

void ValueWriter::add_way(const Argument& argument, const SchemaParts& way, Pieces& pieces) const {
  refuse_keywords(way, conditions, argument.place);
  if (const auto values = literals(way)) {
    refuse_keywords(way, restrictions, argument.place);
    for (const Json& value : *values) add_literal(argument, value, pieces);
    return;
  }
  ValueTypes types = allowed_types(way);
  if (guesses()) types = readable(types, argument.read_as);
  if (types.string) {
    std::string expression;
    for (const Json& part : way) {
      if (!expression.empty()) expression += "& ";
      expression += concat({"%string ", part.dump(), " "});
    }
    pieces.texts.push_back(concat({"(", expression, ")"}));
  }
  add_others(argument, way, types, pieces);
}

void ValueWriter::add_others(const Argument& argument, const SchemaParts& way,
                             const ValueTypes& types, Pieces& pieces) const {
  if (types.null) pieces.scalars.push_back(lark_string("null"));
  if (types.boolean) pieces.scalars.push_back(R"("true" | "false")");
  Json names = Json::array();
  if (types.number) {
    const bool whole = needs_integer(way);
    if (has_bounds(way)) {
      pieces.bounded_numbers = true;
      names.push_back(whole ? "integer" : "number");
    } else {
      pieces.scalars.push_back(concat({"/", integer, whole ? "" : fraction, "/"}));
    }
  }
  if (types.object) names.push_back("object");
  if (types.array) names.push_back("array");
  if (names.empty()) return;
  Json document = Json::object();
  if (way.size() == 1) {
    document = way.front();
  } else {
    document["allOf"] = way;
  }
  document["type"] = names;
  pieces.documents.push_back(json_rule(as_document(argument.root, document)));
}

void ValueWriter::add_literal(const Argument& argument, const Json& value, Pieces& pieces) const {
  if (value.is_string()) {
    const std::string text = value.get<std::string>();
    if (is_read_back(argument, text)) pieces.words.push_back(json_string(text));
    return;
  }
  const std::string json = value.dump();
  const bool same =
      !guesses() || Json::parse(typed_json(json, argument.read_as), nullptr, false) == value;
  const bool whole = std::none_of(form_.stops.begin(), form_.stops.end(), [&json](auto stop) {
    return !stop.empty() && json.find(stop) != std::string::npos;
  });
  if (same && whole) pieces.scalars.push_back(lark_string(json));
}

/// Whether a text between the marks of a string is that string to the parser.
bool ValueWriter::is_read_back(const Argument& argument, const std::string& text) const {
  for (const std::string_view stop : form_.stops) {
    if (!stop.empty() && text.find(stop) != std::string::npos) return false;
  }
  if (is_tagged() && text.starts_with(cdata_open)) return false;
  if (form_.drops_line_ends && (text.starts_with('\n') || text.ends_with('\n'))) return false;
  return !guesses() || typed_json(text, argument.read_as) == json_string(text);
}

/// The expression of a parameter's strings, as far as the parser reads them back.
std::string ValueWriter::texts(const Argument& argument, const Pieces& pieces) const {
  std::vector<std::string> choices = pieces.words;
  if (!pieces.texts.empty()) {
    std::vector<std::string> excluded;
    for (const std::string_view stop : form_.stops) {
      if (stop.empty()) continue;
      excluded.push_back(concat({"/(?s:.*)", escape_expression(stop), "(?s:.*)/"}));
    }
    if (is_tagged()) excluded.push_back(concat({"/", escape_expression(cdata_open), "(?s:.*)/"}));
    if (form_.drops_line_ends) excluded.emplace_back("/\\n(?s:.*)|(?s:.*)\\n/");
    const bool only_string = argument.read_as.known && argument.read_as.only_string();
    if (guesses() && !only_string) {
      const auto readings = other_readings(argument.read_as, pieces.bounded_numbers);
      excluded.insert(excluded.end(), readings.begin(), readings.end());
    }
    choices.push_back(concat({"((", join(pieces.texts), ") & ~(", join(excluded), "))"}));
  }
  return join(choices);
}

std::string ValueWriter::combine(const Argument& argument, const Pieces& pieces) const {
  const std::string terminal = concat({"VALUE_", argument.name});
  const auto [plain_close, close] = markup_.split(is_tagged() ? form_.value_end : form_.quote);
  std::string strings = texts(argument, pieces);
  std::string others = join(pieces.documents);
  // A lexer goes on as long as it can: where only the text tells what a value is, all that may go
  // on like a string is one terminal with it.
  const std::string scalars = join(pieces.scalars);
  std::string& like_scalars = guesses() ? strings : others;
  if (!like_scalars.empty() && !scalars.empty()) like_scalars += "| ";
  like_scalars += scalars;
  std::vector<std::string> choices;
  if (!strings.empty()) {
    rules_ += concat({terminal, ": (", strings, ") ", lark_string(plain_close), "\n"});
    const std::string_view key_end =
        form_.string_key_end.empty() ? form_.key_end : form_.string_key_end;
    const std::string open = is_tagged() ? std::string() : markup_.text(form_.quote);
    choices.push_back(concat({markup_.text(key_end), open, terminal, " ", close}));
  }
  if (!others.empty()) {
    const std::string end = is_tagged() ? markup_.text(form_.value_end) : std::string();
    choices.push_back(concat({markup_.text(form_.key_end), "(", others, ") ", end}));
  }
  if (choices.empty()) refuse_keyword("enum", argument.place);
  return concat({"(", join(choices), ") "});
}

}  // namespace espalier::chat
