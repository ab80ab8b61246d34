#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace espalier::server::protocol {

/// JSON that keeps the order of keys, which chat templates show to the model.
using Json = nlohmann::ordered_json;

/// Parses a request's body, which must be an object. Throws `RequestError` 400 saying where it is
/// not JSON, or that it is nested too deeply.
Json parse_body(std::string_view text);

/// Throws `RequestError` 400 when `body` has no member `name` that is not null.
void require_member(const Json& body, const std::string& name);

/// The text of a JSON value; bytes that are not UTF-8 become U+FFFD.
std::string dump(const Json& value);

/// A client's own word as messages show it: at most 100 bytes, without control characters.
std::string shown(std::string word);

/// A value of a request with its name, read strictly: another JSON type than the one asked for is a
/// `RequestError` 400 naming the parameter. Refers to the value; does not own it.
class Parameter {
 public:
  Parameter(std::string name, const Json& value) : name_(std::move(name)), value_(&value) {}

  const std::string& name() const { return name_; }
  const Json& json() const { return *value_; }

  bool boolean() const;
  double number() const;
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  std::string string() const;
  /// The elements, named `name[i]`.
  std::vector<Parameter> elements() const;
  /// The members that are not null, named `name.key`.
  std::vector<std::pair<std::string, Parameter>> members() const;
  /// The member, or null when it is absent or null. Throws when this is no object.
  const Json* find(std::string_view key) const;

  /// Throws the `RequestError` 400 that says `problem` of this parameter: "'name' problem."
  [[noreturn]] void refuse(const std::string& problem,
                           const std::string& code = "invalid_value") const;

 private:
  [[noreturn]] void wrong_type(std::string_view expected) const;

  std::string name_;
  const Json* value_;
};

enum class Handling { mapped, accepted, refused };

/// How one parameter of a dialect is treated. `apply` puts its value, never null, into the target
/// or throws a `RequestError` naming it; there is no other way for a parameter to be taken.
template <typename Target>
struct ParameterRule {
  std::string name;
  Handling handling;
  std::string note;  // what it sets, why it may be sent without effect, or why it is refused
  std::function<void(const Parameter&, Target&)> apply;
};

template <typename Target>
using ParameterRules = std::vector<ParameterRule<Target>>;

/// A row of the table that `espalier serve --list-parameters` prints.
struct ParameterRow {
  std::string endpoint;
  std::string name;
  Handling handling;
  std::string note;
};

std::string_view handling_name(Handling handling);

/// A parameter that is refused for every value but `neutral` ones, which ask for nothing.
template <typename Target>
ParameterRule<Target> refused(std::string name, std::string note, std::vector<Json> neutral = {}) {
  auto apply = [note, neutral](const Parameter& parameter, Target&) {
    for (const Json& value : neutral) {
      if (parameter.json() == value) return;
    }
    parameter.refuse("is not supported: " + note, "unsupported_parameter");
  };
  return {std::move(name), Handling::refused, note, std::move(apply)};
}

/// A parameter of which every value may be sent, since it asks nothing that changes the answer.
template <typename Target>
ParameterRule<Target> accepted(std::string name, std::string note) {
  return {std::move(name), Handling::accepted, std::move(note), [](const Parameter&, Target&) {}};
}

template <typename Target>
ParameterRule<Target> mapped(std::string name, std::string note,
                             std::function<void(const Parameter&, Target&)> apply) {
  return {std::move(name), Handling::mapped, std::move(note), std::move(apply)};
}

/// Applies each member of `body` by the rule of its name. A name without a rule is a `RequestError`
/// 400; null is the same as absent.
template <typename Target>
void apply_rules(const Json& body, const ParameterRules<Target>& rules, Target& target) {
  for (const auto& [key, value] : body.items()) {
    const Parameter parameter(key, value);
    const ParameterRule<Target>* found = nullptr;
    for (const ParameterRule<Target>& rule : rules) {
      if (rule.name == key) found = &rule;
    }
    if (found == nullptr) {
      parameter.refuse("is not a parameter of this endpoint", "unknown_parameter");
    }
    if (!value.is_null()) found->apply(parameter, target);
  }
}

template <typename Target>
void append_rows(std::vector<ParameterRow>& rows, const std::string& endpoint,
                 const ParameterRules<Target>& rules) {
  for (const ParameterRule<Target>& rule : rules) {
    rows.push_back({endpoint, rule.name, rule.handling, rule.note});
  }
}

}  // namespace espalier::server::protocol
