#include "evaluation/quality.h"

#include <algorithm>
#include <span>
#include <string>

#include "base/error.h"
#include "evaluation/sequence_runner.h"
#include "evaluation/token_rows.h"
#include "generation/divergence.h"

namespace espalier::evaluation {
namespace {

/// Positions computed at once: two times their logits are held.
constexpr std::size_t piece_rows = 64;

int count_same_top(const mlx::core::array& a, const mlx::core::array& b) {
  const int width = a.shape(1);
  int same = 0;
  for (int row = 0; row < a.shape(0); ++row) {
    const auto top = [row, width](const mlx::core::array& logits) {
      const float* begin = logits.data<float>() + static_cast<std::ptrdiff_t>(row) * width;
      return std::max_element(begin, begin + width) - begin;
    };
    same += top(a) == top(b) ? 1 : 0;
  }
  return same;
}

void check_options(const models::Model& model, const std::vector<TokenId>& tokens,
                   const QualityOptions& options) {
  if (options.context < 1 || options.context > model.descriptor().context) {
    throw base::UsageError("the pieces of text must have between 1 and the model's " +
                           std::to_string(model.descriptor().context) + " tokens, not " +
                           std::to_string(options.context));
  }
  if (tokens.size() < static_cast<std::size_t>(options.context)) {
    throw base::UsageError("the text has " + std::to_string(tokens.size()) +
                           " tokens; one piece needs " + std::to_string(options.context));
  }
  check_token_ids(tokens, model.descriptor().vocabulary);
}

}  // namespace

Quality compare(models::Model& exact, models::Model& other, const std::vector<TokenId>& tokens,
                const QualityOptions& options) {
  check_options(exact, tokens, options);
  const auto context = static_cast<std::size_t>(options.context);
  const int rows = std::min(std::max(options.rows, 1), static_cast<int>(tokens.size() / context));
  SequenceRunner exact_runner(exact, options.context, options.kv_type);
  SequenceRunner other_runner(other, options.context, options.kv_type);
  Quality quality{};
  int same = 0;
  for (int i = 0; i < rows; ++i) {
    std::span<const TokenId> row(tokens.data() + static_cast<std::size_t>(i) * context, context);
    exact_runner.restart();
    other_runner.restart();
    while (!row.empty()) {
      const auto piece = row.first(std::min(piece_rows, row.size()));
      row = row.subspan(piece.size());
      const auto a = exact_runner.feed(piece, static_cast<int>(piece.size()));
      const auto b = other_runner.feed(piece, static_cast<int>(piece.size()));
      for (const double value : generation::divergences(a, b)) {
        quality.divergence += value;
        quality.largest = std::max(quality.largest, value);
      }
      same += count_same_top(a, b);
    }
    if (options.progress) options.progress(i + 1, rows);
  }
  quality.positions = rows * options.context;
  quality.divergence /= quality.positions;
  quality.same_top = static_cast<double>(same) / quality.positions;
  return quality;
}

}  // namespace espalier::evaluation
