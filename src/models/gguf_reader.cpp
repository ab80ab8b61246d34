#include "models/gguf_reader.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "layers/weight_reader.h"
#include "models/config_reader.h"

namespace espalier::models {
namespace {

/// Keys without influence on what a causal decoder answers, or that tensors' shapes state too.
constexpr std::array inert_gguf_keys = {
    "rope.scaling.finetuned",
    "vocab_size",
};

/// Throws `LoadError` for a file that says of itself that it is no model.
std::shared_ptr<const arrays::GgufFile> refuse_other_kinds(
    std::shared_ptr<const arrays::GgufFile> file) {
  constexpr auto kinds = std::to_array<std::pair<std::string_view, std::string_view>>(
      {{"adapter", "an adapter of a model"},
       {"imatrix", "an importance matrix"},
       {"mmproj", "the part of a model that sees or hears"}});
  const std::string type = file->metadata().string("general.type").value_or("");
  for (const auto& [kind, meaning] : kinds) {
    if (type == kind) {
      throw base::LoadError(file->path() + " is no model: its general.type is " + type + ", " +
                            std::string(meaning) + ".");
    }
  }
  return file;
}

}  // namespace

GgufReader::GgufReader(std::shared_ptr<const arrays::GgufFile> file, layers::WeightReader& weights)
    : file_(refuse_other_kinds(std::move(file))),
      weights_(&weights),
      architecture_(file_->metadata().require_string("general.architecture")) {}

std::string GgufReader::full_key(std::string_view key) const {
  std::string full = architecture_ + "." + std::string(key);
  read_.insert(full);
  return full;
}

void GgufReader::fail(std::string_view key, const std::string& reason) const {
  throw base::LoadError(path() + ": '" + full_key(key) + "' " + reason + ".");
}

bool GgufReader::contains(std::string_view key) const {
  return file_->metadata().contains(architecture_ + "." + std::string(key));
}

int GgufReader::integer(std::string_view key, std::optional<int> fallback) const {
  const std::optional<std::int64_t> value = file_->metadata().integer(full_key(key));
  if (!value && fallback) {
    return *fallback;
  }
  if (!value) {
    fail(key, "is missing");
  }
  if (*value < 0 || *value > largest_size) {
    fail(key, "is " + std::to_string(*value) + ", which is out of range");
  }
  return static_cast<int>(*value);
}

std::vector<int> GgufReader::integers(std::string_view key) const {
  const std::string full = full_key(key);
  const arrays::GgufValue* value = file_->metadata().find(full);
  if (value == nullptr) {
    return {};
  }
  const bool single =
      std::holds_alternative<std::uint64_t>(*value) || std::holds_alternative<std::int64_t>(*value);
  if (single) {
    return {integer(key)};
  }
  const std::vector<std::int64_t> items = file_->metadata().integers(full).value();
  std::vector<int> list;
  for (const std::int64_t item : items) {
    if (item < 0 || item > largest_size) {
      fail(key, "has " + std::to_string(item) + ", which is out of range");
    }
    list.push_back(static_cast<int>(item));
  }
  return list;
}

bool GgufReader::any_layer_has(std::string_view name) const {
  const std::string suffix = std::string(1, '.').append(name);
  return std::ranges::any_of(file_->tensors(), [&](const arrays::TensorView& tensor) {
    return tensor.name.starts_with("blk.") && tensor.name.ends_with(suffix);
  });
}

bool GgufReader::boolean(std::string_view key, bool fallback) const {
  return file_->metadata().boolean(full_key(key)).value_or(fallback);
}

double GgufReader::number(std::string_view key, std::optional<double> fallback) const {
  const std::optional<double> value = file_->metadata().number(full_key(key));
  if (!value && fallback) {
    return *fallback;
  }
  if (!value) {
    fail(key, "is missing");
  }
  return *value;
}

std::string GgufReader::string(std::string_view key, std::optional<std::string> fallback) const {
  const std::optional<std::string> value = file_->metadata().string(full_key(key));
  if (!value && fallback) {
    return *fallback;
  }
  if (!value) {
    fail(key, "is missing");
  }
  return *value;
}

void GgufReader::require_off(std::string_view key) const {
  if (const int value = integer(key, 0); value != 0) {
    fail(key, "is " + std::to_string(value) + ", which is not supported");
  }
}

int GgufReader::tensor_rows(const std::string& name) const {
  const arrays::TensorView* tensor = file_->find(name);
  if (tensor == nullptr) {
    throw base::LoadError(path() + ": tensor '" + name + "' is missing.");
  }
  if (tensor->shape.empty() || tensor->shape.front() > std::numeric_limits<int>::max()) {
    throw base::LoadError(path() + ": tensor '" + name + "' is not a matrix of a usable size.");
  }
  return static_cast<int>(tensor->shape.front());
}

std::vector<float> GgufReader::factors(const std::string& name, int size) const {
  return has_tensor(name) ? weights_->vector(name, size) : std::vector<float>{};
}

std::vector<std::int32_t> GgufReader::end_tokens() const {
  std::vector<std::int32_t> tokens;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    const std::optional<std::int64_t> id = file_->metadata().integer(key);
    if (id && std::ranges::find(tokens, *id) == tokens.end()) {
      tokens.push_back(static_cast<std::int32_t>(*id));
    }
  }
  return tokens;
}

void GgufReader::check_all_read() const {
  std::string names;
  for (const auto& [key, value] : file_->metadata().values()) {
    if (!key.starts_with(architecture_ + ".") || read_.contains(key) ||
        std::ranges::find(inert_gguf_keys, key.substr(architecture_.size() + 1)) !=
            inert_gguf_keys.end()) {
      continue;
    }
    names += (names.empty() ? "'" : ", '") + key + "'";
  }
  if (!names.empty()) {
    throw base::LoadError(path() + ": no meaning is known for " + names +
                          ", and ignoring it might change the results.");
  }
}

}  // namespace espalier::models
