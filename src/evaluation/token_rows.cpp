#include "evaluation/token_rows.h"

#include <fstream>
#include <limits>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace espalier::evaluation {

using base::LoadError;
using tokenizer::TokenId;

namespace {

std::vector<TokenId> parse_row(const nlohmann::json& json, const std::string& path) {
  if (!json.is_array() || json.empty()) {
    throw LoadError(path + ": every entry must be a non-empty array of token ids");
  }
  std::vector<TokenId> row;
  for (const auto& id : json) {
    const bool fits =
        id.is_number_unsigned() && id.get<std::uint64_t>() <= std::numeric_limits<TokenId>::max();
    if (!fits) throw LoadError(path + ": " + id.dump() + " is not a token id");
    row.push_back(id.get<TokenId>());
  }
  return row;
}

}  // namespace

std::vector<std::vector<TokenId>> read_token_rows(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file || std::filesystem::is_directory(path)) {
    throw LoadError("cannot open " + path.string());
  }
  const auto json = nlohmann::json::parse(file, nullptr, false);
  if (json.is_discarded()) throw LoadError(path.string() + " is not valid JSON");
  if (!json.is_array() || json.empty()) {
    throw LoadError(path.string() + ": expected a non-empty array of arrays of token ids");
  }
  std::vector<std::vector<TokenId>> rows;
  for (const auto& entry : json) {
    rows.push_back(parse_row(entry, path.string()));
    if (rows.back().size() != rows.front().size()) {
      throw LoadError(path.string() + ": the arrays of token ids must be equally long");
    }
  }
  return rows;
}

void check_token_ids(std::span<const TokenId> ids, int vocabulary) {
  for (const TokenId id : ids) {
    if (id < 0 || id >= vocabulary) {
      throw base::UsageError("token id " + std::to_string(id) + " is outside the vocabulary of " +
                             std::to_string(vocabulary));
    }
  }
}

}  // namespace espalier::evaluation
