#include "evaluation/perplexity.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "base/error.h"
#include "base/thread_pool.h"
#include "base/tile_counter.h"
#include "evaluation/sequence_runner.h"
#include "evaluation/token_rows.h"

namespace espalier::evaluation {
namespace {

using base::UsageError;

/// How much memory the logits of one piece may take.
constexpr std::int64_t logits_bytes = 64 << 20;

/// Minus the log-probability of `target` under softmax(logits).
double surprise(std::span<const float> logits, TokenId target) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return std::log(sum) - (static_cast<double>(logits[target]) - largest);
}

/// Sums over scored tokens.
class Score {
 public:
  /// Row i of `logits` [R, V] predicts `targets[i]`.
  void add(const mlx::core::array& logits, std::span<const TokenId> targets) {
    const auto width = static_cast<std::size_t>(logits.shape(1));
    const float* data = logits.data<float>();
    std::vector<double> surprises(targets.size());
    base::TileCounter rows(targets.size());
    base::compute_pool().run([&](int) {
      for (std::size_t row; rows.next(row);) {
        surprises[row] = surprise({data + row * width, width}, targets[row]);
      }
    });
    for (const double value : surprises) {
      sum_ += value;
      sum_of_squares_ += value * value;
    }
    count_ += static_cast<std::int64_t>(targets.size());
  }

  PerplexityResult result() const {
    const auto count = static_cast<double>(count_);
    const double mean = sum_ / count;
    const double variance = std::max(0.0, sum_of_squares_ / count - mean * mean);
    const double perplexity = std::exp(mean);
    const double error = count > 1 ? std::sqrt(variance / (count - 1)) : 0.0;
    return {perplexity, perplexity * error, count_};
  }

 private:
  double sum_ = 0;
  double sum_of_squares_ = 0;
  std::int64_t count_ = 0;
};

/// Scores tokens [first + 1, end) of one row, each from all before it.
void score_row(SequenceRunner& runner, std::span<const TokenId> row, std::size_t first,
               std::size_t piece, Score& score) {
  runner.restart();
  if (first > 0) runner.feed(row.first(first), 0);
  // The last token predicts nothing that is known.
  for (std::size_t begin = first; begin + 1 < row.size();) {
    const std::size_t rows = std::min(piece, row.size() - 1 - begin);
    const auto logits = runner.feed(row.subspan(begin, rows), static_cast<int>(rows));
    score.add(logits, row.subspan(begin + 1, rows));
    begin += rows;
  }
}

void check_options(const models::Model& model, std::size_t tokens,
                   const PerplexityOptions& options) {
  const int shortest = options.mlx_lm ? 2 : 4;
  if (options.context < shortest || options.context > model.descriptor().context) {
    throw UsageError("the context of a perplexity must lie between " + std::to_string(shortest) +
                     " and the model's " + std::to_string(model.descriptor().context) + ", not " +
                     std::to_string(options.context));
  }
  const std::size_t rows = options.mlx_lm ? 1 : 2;
  if (tokens < rows * static_cast<std::size_t>(options.context)) {
    throw UsageError("the text has " + std::to_string(tokens) +
                     " tokens; a perplexity at context " + std::to_string(options.context) +
                     " needs at least " +
                     std::to_string(rows * static_cast<std::size_t>(options.context)));
  }
}

}  // namespace

PerplexityResult perplexity(models::Model& model, const std::vector<TokenId>& tokens,
                            std::optional<TokenId> start, const PerplexityOptions& options) {
  check_options(model, tokens.size(), options);
  const int vocabulary = model.descriptor().vocabulary;
  check_token_ids(tokens, vocabulary);
  const auto context = static_cast<std::size_t>(options.context);
  std::size_t rows = tokens.size() / context;
  if (options.mlx_lm) rows = std::min(rows, static_cast<std::size_t>(std::max(options.samples, 1)));
  const std::size_t first = options.mlx_lm ? 0 : context / 2;
  const auto piece = static_cast<std::size_t>(
      std::clamp<std::int64_t>(logits_bytes / (4LL * vocabulary), 16, 512));
  SequenceRunner runner(model, options.context, options.kv_type);
  Score score;
  for (std::size_t i = 0; i < rows; ++i) {
    std::vector<TokenId> row(tokens.begin() + static_cast<std::ptrdiff_t>(i * context),
                             tokens.begin() + static_cast<std::ptrdiff_t>((i + 1) * context));
    if (start && !options.mlx_lm) row.front() = *start;
    score_row(runner, row, first, piece, score);
    if (options.progress) options.progress(static_cast<int>(i + 1), static_cast<int>(rows));
  }
  return score.result();
}

PerplexityResult perplexity(models::Model& model, const tokenizer::Tokenizer& tokenizer,
                            std::string_view text, const PerplexityOptions& options) {
  const auto tokens = tokenizer.encode(text, tokenizer::SpecialTokens::add);
  const auto nothing = tokenizer.encode("", tokenizer::SpecialTokens::add);
  const bool adds_start = !nothing.empty() && nothing.front() == tokenizer.bos();
  return perplexity(model, tokens, adds_start ? tokenizer.bos() : std::nullopt, options);
}

}  // namespace espalier::evaluation
