#include "server/protocol/structured_output.h"

#include <functional>
#include <map>
#include <utility>

namespace espalier::server::protocol {
namespace {

using grammar::Notation;

void set_grammar(const Parameter& parameter, Notation notation, std::string text,
                 GenerationOptions& options) {
  if (options.constraint) {
    parameter.refuse("cannot go together with '" + options.constraint->parameter +
                     "': a text follows one grammar");
  }
  options.constraint = RequestedGrammar{.grammar = {.notation = notation, .text = std::move(text)},
                                        .parameter = parameter.name()};
}

/// A schema as JSON or as a string of it.
void set_schema(const Parameter& parameter, GenerationOptions& options) {
  const Json& value = parameter.json();
  if (!value.is_object() && !value.is_boolean() && !value.is_string()) {
    parameter.refuse("must be a JSON schema", "invalid_type");
  }
  set_grammar(parameter, Notation::json_schema,
              value.is_string() ? value.get<std::string>() : dump(value), options);
}

void set_any_object(const Parameter& parameter, GenerationOptions& options) {
  set_grammar(parameter, Notation::json_schema, std::string(grammar::any_object_schema), options);
}

void set_object_switch(const Parameter& parameter, GenerationOptions& options) {
  if (parameter.boolean()) set_any_object(parameter, options);
}

void set_regex(const Parameter& parameter, GenerationOptions& options) {
  set_grammar(parameter, Notation::regex, parameter.string(), options);
}

void set_choice(const Parameter& parameter, GenerationOptions& options) {
  for (const Parameter& choice : parameter.elements()) choice.string();
  set_grammar(parameter, Notation::choice, dump(parameter.json()), options);
}

/// An empty grammar asks for nothing.
void set_grammar_text(const Parameter& parameter, GenerationOptions& options) {
  std::string text = parameter.string();
  if (text.empty()) return;
  const Notation notation = grammar::grammar_notation(text);
  set_grammar(parameter, notation, std::move(text), options);
}

void refuse_unless_false(const Parameter& parameter, GenerationOptions&) {
  if (parameter.json() != Json(false)) {
    parameter.refuse("is not supported", "unsupported_parameter");
  }
}

using Reader = std::function<void(const Parameter&, GenerationOptions&)>;

/// Reads an object each of whose members has a reader.
void read_members(const Parameter& parameter, const std::map<std::string, Reader>& readers,
                  GenerationOptions& options) {
  for (const auto& [key, value] : parameter.members()) {
    const auto reader = readers.find(key);
    if (reader == readers.end()) value.refuse("is not supported", "unknown_parameter");
    reader->second(value, options);
  }
}

void read_structured_outputs(const Parameter& parameter, GenerationOptions& options) {
  static const std::map<std::string, Reader> readers = {
      {"json", set_schema},
      {"json_object", set_object_switch},
      {"regex", set_regex},
      {"choice", set_choice},
      {"grammar", set_grammar_text},
      {"disable_fallback", [](const Parameter& value, GenerationOptions&) { value.boolean(); }},
      {"disable_any_whitespace", refuse_unless_false},
      {"disable_additional_properties", refuse_unless_false}};
  read_members(parameter, readers, options);
}

/// `json_schema` of a response format. Texts follow the schema with `strict` and without.
void read_named_schema(const Parameter& parameter, GenerationOptions& options) {
  static const std::map<std::string, Reader> readers = {
      {"name", [](const Parameter& value, GenerationOptions&) { value.string(); }},
      {"description", [](const Parameter& value, GenerationOptions&) { value.string(); }},
      {"strict", [](const Parameter& value, GenerationOptions&) { value.boolean(); }},
      {"schema", set_schema}};
  if (parameter.find("schema") == nullptr) parameter.refuse("has no schema", "missing_parameter");
  read_members(parameter, readers, options);
}

void read_response_format(const Parameter& parameter, GenerationOptions& options) {
  const Json* type = parameter.find("type");
  if (type == nullptr) parameter.refuse("has no type", "missing_parameter");
  const Parameter type_parameter(parameter.name() + ".type", *type);
  const std::string name = type_parameter.string();
  const bool named = name == "json_schema";
  if (!named && name != "json_object" && name != "text") {
    type_parameter.refuse("must be 'text', 'json_object' or 'json_schema'",
                          "unsupported_parameter");
  }
  if (named && parameter.find("json_schema") == nullptr) {
    parameter.refuse("has no json_schema", "missing_parameter");
  }
  // llama.cpp's clients give the schema of an object beside the type.
  const bool has_schema = name == "json_object" && parameter.find("schema") != nullptr;
  if (name == "json_object" && !has_schema) set_any_object(parameter, options);
  for (const auto& [key, value] : parameter.members()) {
    if (key == "type") continue;
    if (named && key == "json_schema") {
      read_named_schema(value, options);
    } else if (has_schema && key == "schema") {
      set_schema(value, options);
    } else {
      value.refuse("does not go with the type '" + name + "'", "unknown_parameter");
    }
  }
}

}  // namespace

ParameterRules<GenerationOptions> structured_output_rules() {
  const auto rule = [](const char* name, const char* note, const Reader& reader) {
    return mapped<GenerationOptions>(name, note, reader);
  };
  return {
      rule("response_format", "text, json_object, or json_schema with a schema",
           read_response_format),
      rule("json_schema", "a schema that the text follows", set_schema),
      rule("grammar", "a grammar that the text follows, GBNF or Lark", set_grammar_text),
      rule("structured_outputs", "json, json_object, regex, choice or grammar",
           read_structured_outputs),
      rule("guided_json", "a schema that the text follows", set_schema),
      rule("guided_regex", "a regular expression for the whole text", set_regex),
      rule("guided_choice", "texts one of which is the answer", set_choice),
      rule("guided_grammar", "a grammar that the text follows, GBNF or Lark", set_grammar_text),
      accepted<GenerationOptions>("guided_decoding_backend", "there is one, llguidance"),
      refused<GenerationOptions>("guided_whitespace_pattern", "white space in JSON is bounded"),
      refused<GenerationOptions>("grammar_lazy", "a grammar holds from the first token", {false}),
      refused<GenerationOptions>("grammar_triggers", "a grammar holds from the first token",
                                 {Json::array()}),
      refused<GenerationOptions>("structural_tag", "use 'grammar' with Lark"),
  };
}

void compile_grammar(const ServedModel& model, PreparedRun& run) {
  if (!run.constraint) return;
  try {
    const auto constraint = model.grammars->compile(run.constraint->grammar);
    for (auto& sequence : run.sequences) sequence.constraint = constraint;
  } catch (const base::RequestError& error) {
    throw base::RequestError(error.status(), error.code(), error.what(), run.constraint->parameter);
  }
}

}  // namespace espalier::server::protocol
