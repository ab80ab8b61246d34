#include <limits>
#include <utility>

#include "arrays/gguf.h"
#include "arrays/tensor_index.h"
#include "base/error.h"

namespace espalier::arrays {
namespace {

using base::LoadError;

[[noreturn]] void wrong_type(const std::string& path, std::string_view key, const char* expected) {
  throw LoadError(path + ": key " + shown_name(key) + " is not " + expected);
}

[[noreturn]] void missing(const std::string& path, std::string_view key) {
  throw LoadError(path + ": key " + shown_name(key) + " is missing");
}

bool fits_signed(std::uint64_t value) {
  return value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
}

}  // namespace

GgufMetadata::GgufMetadata(std::string path, std::map<std::string, GgufValue, std::less<>> values)
    : path_(std::move(path)), values_(std::move(values)) {}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

bool GgufMetadata::contains(std::string_view key) const { return find(key) != nullptr; }

std::optional<std::int64_t> GgufMetadata::integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<std::int64_t>(value)) return *number;
  const auto* number = std::get_if<std::uint64_t>(value);
  if (number == nullptr || !fits_signed(*number)) wrong_type(path_, key, "an integer");
  return static_cast<std::int64_t>(*number);
}

std::optional<double> GgufMetadata::number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* number = std::get_if<double>(value)) return *number;
  if (const auto* number = std::get_if<std::int64_t>(value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<std::uint64_t>(value)) return static_cast<double>(*number);
  wrong_type(path_, key, "a number");
}

std::optional<bool> GgufMetadata::boolean(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* flag = std::get_if<bool>(value)) return *flag;
  wrong_type(path_, key, "a boolean");
}

std::optional<std::string> GgufMetadata::string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* text = std::get_if<std::string>(value)) return *text;
  wrong_type(path_, key, "a string");
}

std::optional<std::vector<std::int64_t>> GgufMetadata::integers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(value)) return *list;
  const auto* list = std::get_if<std::vector<std::uint64_t>>(value);
  if (list == nullptr) wrong_type(path_, key, "an array of integers");
  for (const std::uint64_t item : *list) {
    if (!fits_signed(item)) wrong_type(path_, key, "an array of signed 64-bit integers");
  }
  return std::vector<std::int64_t>(list->begin(), list->end());
}

std::optional<std::vector<double>> GgufMetadata::numbers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* list = std::get_if<std::vector<double>>(value)) return *list;
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(value)) {
    return std::vector<double>(list->begin(), list->end());
  }
  if (const auto* list = std::get_if<std::vector<std::uint64_t>>(value)) {
    return std::vector<double>(list->begin(), list->end());
  }
  wrong_type(path_, key, "an array of numbers");
}

const std::vector<std::string>* GgufMetadata::strings(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  const auto* list = std::get_if<std::vector<std::string>>(value);
  if (list == nullptr) wrong_type(path_, key, "an array of strings");
  return list;
}

std::int64_t GgufMetadata::require_integer(std::string_view key) const {
  const auto value = integer(key);
  if (!value) missing(path_, key);
  return *value;
}

double GgufMetadata::require_number(std::string_view key) const {
  const auto value = number(key);
  if (!value) missing(path_, key);
  return *value;
}

std::string GgufMetadata::require_string(std::string_view key) const {
  auto value = string(key);
  if (!value) missing(path_, key);
  return std::move(*value);
}

}  // namespace espalier::arrays
