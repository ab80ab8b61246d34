#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "chat/call_forms.h"
#include "chat/call_markup.h"
#include "chat/schema_alternatives.h"
#include "chat/tool_set.h"

namespace espalier::chat {

/// A parameter whose values a grammar is to allow.
struct Argument {
  const nlohmann::ordered_json& root;    // the function's schema
  const nlohmann::ordered_json& schema;  // the parameter's, inside it
  ValueTypes read_as;                    // what the parser makes of values without quotes
  std::string name;                      // ends the names of its rules
  std::string place;                     // what messages call it
};

/// Writes the values of arguments that do not stand in one JSON object: JSON, or text that the
/// parser reads back as the same string.
class ValueWriter {
 public:
  /// Further rules are added to `rules`.
  ValueWriter(const CallForm& form, const MarkupWriter& markup, std::string& rules)
      : form_(form), markup_(markup), rules_(rules) {}

  /// What follows the key. Throws `RequestError` 400 naming what cannot be kept.
  std::string write(const Argument& argument) const;

 private:
  struct Pieces;

  bool is_tagged() const { return form_.arguments == ArgumentForm::tagged; }
  /// Whether the parser tells from a text alone what it is.
  bool guesses() const { return is_tagged() && form_.string_key_end.empty(); }
  void add_way(const Argument& argument, const SchemaParts& way, Pieces& pieces) const;
  void add_literal(const Argument& argument, const nlohmann::ordered_json& value,
                   Pieces& pieces) const;
  void add_others(const Argument& argument, const SchemaParts& way, const ValueTypes& types,
                  Pieces& pieces) const;
  bool is_read_back(const Argument& argument, const std::string& text) const;
  std::string texts(const Argument& argument, const Pieces& pieces) const;
  std::string combine(const Argument& argument, const Pieces& pieces) const;

  const CallForm& form_;
  const MarkupWriter& markup_;
  std::string& rules_;
};

}  // namespace espalier::chat
