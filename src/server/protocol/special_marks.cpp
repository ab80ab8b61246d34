#include "server/protocol/special_marks.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <random>

namespace espalier::server::protocol {
namespace {

// A mark is made of digits: they pass through `upper`, `trim` and JSON's escapes as they are.
constexpr std::string_view mark_end = ".";

std::string random_digits() {
  std::random_device device;
  return std::to_string((static_cast<std::uint64_t>(device()) << 32) | device());
}

}  // namespace

SpecialMarks::SpecialMarks(const std::unordered_set<std::string>& names)
    : names_(names), begin_(random_digits() + ".") {
  for (const std::string& name : names) lengths_.insert(name.size());
}

void SpecialMarks::mark(Json& value) {
  if (value.is_string()) {
    mark_text(value.get_ref<std::string&>());
  } else if (value.is_array()) {
    for (Json& element : value) mark(element);
  } else if (value.is_object()) {
    Json marked = Json::object();
    for (auto& [key, element] : value.items()) {
      std::string name = key;
      mark_text(name);
      mark(element);
      marked[name] = std::move(element);
    }
    value = std::move(marked);
  }
}

void SpecialMarks::mark_text(std::string& text) {
  std::array<bool, 256> starts{};
  for (const std::string& name : names_) {
    if (!name.empty()) starts[static_cast<unsigned char>(name.front())] = true;
  }
  std::string result;
  std::size_t copied = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!starts[static_cast<unsigned char>(text[i])]) continue;
    for (const std::size_t length : lengths_) {
      if (length == 0 || length > text.size() - i) continue;
      const std::string candidate = text.substr(i, length);
      if (!names_.contains(candidate)) continue;
      result.append(text, copied, i - copied);
      result += begin_ + std::to_string(marked_.size()) + std::string(mark_end);
      marked_.push_back(candidate);
      copied = i + length;
      i = copied - 1;
      break;
    }
  }
  if (copied == 0) return;
  result.append(text, copied);
  text = std::move(result);
}

std::vector<PromptPiece> SpecialMarks::split(std::string_view rendered) const {
  // A mark is known by its digits alone, so that one whose end was cut off is noticed.
  const std::string_view digits(begin_.data(), begin_.size() - mark_end.size());
  std::vector<PromptPiece> pieces;
  while (!rendered.empty()) {
    const auto begin = rendered.find(digits);
    if (begin != 0) pieces.push_back({std::string(rendered.substr(0, begin)), false});
    if (begin == std::string_view::npos) break;
    rendered.remove_prefix(begin);
    const bool whole = rendered.starts_with(begin_);
    rendered.remove_prefix(std::min(begin_.size(), rendered.size()));
    const auto end = rendered.find(mark_end);
    std::size_t index = 0;
    std::from_chars(rendered.data(), rendered.data() + std::min(end, rendered.size()), index);
    if (!whole || end == std::string_view::npos || index >= marked_.size()) {
      throw base::RequestError(400, "invalid_template",
                               "The model's chat template takes messages apart in which names of "
                               "special tokens stand.",
                               "messages");
    }
    pieces.push_back({marked_[index], true});
    rendered.remove_prefix(end + mark_end.size());
  }
  return pieces;
}

std::unordered_set<tokenizer::TokenId> special_tokens_in(const tokenizer::Tokenizer& tokenizer,
                                                         const std::vector<std::string>& texts) {
  std::unordered_set<tokenizer::TokenId> ids;
  for (tokenizer::TokenId id = 0; id < tokenizer.vocabulary_size(); ++id) {
    if (!tokenizer.is_special(id)) continue;
    const std::string name = tokenizer.token_name(id);
    const bool found = std::any_of(texts.begin(), texts.end(), [&name](const std::string& text) {
      return text.find(name) != std::string::npos;
    });
    if (found && !name.empty()) ids.insert(id);
  }
  return ids;
}

std::string SpecialMarks::restore(std::string text) const {
  for (std::size_t i = 0; i < marked_.size(); ++i) {
    const std::string mark = begin_ + std::to_string(i) + std::string(mark_end);
    for (auto at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
      text.replace(at, mark.size(), marked_[i]);
      at += marked_[i].size();
    }
  }
  return text;
}

std::unordered_set<std::string> special_names(const tokenizer::Tokenizer& tokenizer) {
  std::unordered_set<std::string> names;
  for (tokenizer::TokenId id = 0; id < tokenizer.vocabulary_size(); ++id) {
    if (tokenizer.is_special(id)) names.insert(tokenizer.token_name(id));
  }
  names.erase("");
  return names;
}

}  // namespace espalier::server::protocol
