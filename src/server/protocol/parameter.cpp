#include "server/protocol/parameter.h"

#include <algorithm>
#include <cmath>

#include "server/protocol/json_text.h"

namespace espalier::server::protocol {
namespace {

std::string position(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte > 0 ? byte - 1 : 0, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const auto line_start = before.rfind('\n');
  const auto column =
      before.size() - (line_start == std::string_view::npos ? 0 : line_start + 1) + 1;
  return "byte " + std::to_string(byte) + " (line " + std::to_string(line) + ", column " +
         std::to_string(column) + ")";
}

}  // namespace

Json parse_body(std::string_view text) {
  Json body;
  try {
    body = parse_json(text);
  } catch (const JsonError& error) {
    const std::string place = error.byte() == 0 ? "" : " at " + position(text, error.byte());
    throw base::RequestError(400, "invalid_json",
                             "The request's JSON " + std::string(error.what()) + place + ".");
  }
  if (!body.is_object()) {
    throw base::RequestError(
        400, "invalid_json",
        std::string("The request's body must be a JSON object, not ") + body.type_name() + ".");
  }
  return body;
}

void require_member(const Json& body, const std::string& name) {
  const auto found = body.find(name);
  if (found != body.end() && !found->is_null()) return;
  throw base::RequestError(400, "missing_parameter", "'" + name + "' is missing.", name);
}

std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string shown(std::string word) {
  constexpr std::size_t longest = 100;
  if (word.size() > longest) {
    std::size_t end = longest;
    while (end > 0 && (static_cast<unsigned char>(word[end]) & 0xC0) == 0x80) --end;
    word.resize(end);
    word += "…";
  }
  std::replace_if(
      word.begin(), word.end(), [](char c) { return c >= 0 && c < ' '; }, ' ');
  return word;
}

bool Parameter::boolean() const {
  if (!value_->is_boolean()) wrong_type("true or false");
  return value_->get<bool>();
}

double Parameter::number() const {
  if (!value_->is_number()) wrong_type("a number");
  return value_->get<double>();
}

std::int64_t Parameter::integer(std::int64_t least, std::int64_t most) const {
  const auto out_of_range = [&] {
    refuse("must be between " + std::to_string(least) + " and " + std::to_string(most));
  };
  if (value_->is_number_unsigned()) {
    const auto value = value_->get<std::uint64_t>();
    if (value > static_cast<std::uint64_t>(std::max<std::int64_t>(most, 0))) out_of_range();
  } else if (value_->is_number_float()) {
    // A whole number with a fraction of zero (5.0) is what some languages print for an integer.
    const double value = value_->get<double>();
    if (value != std::floor(value)) wrong_type("an integer");
    if (std::abs(value) > 9.0e15) out_of_range();
  } else if (!value_->is_number_integer()) {
    wrong_type("an integer");
  }
  const auto value = value_->get<std::int64_t>();
  if (value < least || value > most) out_of_range();
  return value;
}

std::string Parameter::string() const {
  if (!value_->is_string()) wrong_type("a string");
  return value_->get<std::string>();
}

std::vector<Parameter> Parameter::elements() const {
  if (!value_->is_array()) wrong_type("an array");
  std::vector<Parameter> result;
  result.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) {
    result.emplace_back(name_ + "[" + std::to_string(i) + "]", (*value_)[i]);
  }
  return result;
}

std::vector<std::pair<std::string, Parameter>> Parameter::members() const {
  if (!value_->is_object()) wrong_type("an object");
  std::vector<std::pair<std::string, Parameter>> result;
  for (const auto& [key, value] : value_->items()) {
    if (!value.is_null()) result.emplace_back(key, Parameter(name_ + "." + key, value));
  }
  return result;
}

const Json* Parameter::find(std::string_view key) const {
  if (!value_->is_object()) wrong_type("an object");
  const auto found = value_->find(std::string(key));
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

void Parameter::refuse(const std::string& problem, const std::string& code) const {
  const std::string name = shown(name_);
  throw base::RequestError(400, code, "'" + name + "' " + problem + ".", name);
}

void Parameter::wrong_type(std::string_view expected) const {
  refuse("must be " + std::string(expected) + ", not " + value_->type_name(), "invalid_type");
}

std::string_view handling_name(Handling handling) {
  switch (handling) {
    case Handling::mapped:
      return "mapped";
    case Handling::accepted:
      return "accepted";
    case Handling::refused:
      return "refused";
  }
  return "";
}

}  // namespace espalier::server::protocol
