#pragma once

#include <filesystem>
#include <span>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace espalier::evaluation {

/// Reads a JSON array of equally long, non-empty arrays of token ids. Throws `LoadError` naming the
/// file when it holds anything else.
std::vector<std::vector<tokenizer::TokenId>> read_token_rows(const std::filesystem::path& path);

/// Throws `UsageError` when an id is not in [0, vocabulary).
void check_token_ids(std::span<const tokenizer::TokenId> ids, int vocabulary);

}  // namespace espalier::evaluation
